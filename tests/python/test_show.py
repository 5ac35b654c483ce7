"""test_show.py: what a notebook shows: pictures, simulations, and examples/notebooks, executed."""
import ast
import contextlib
import io
import json
import os
import pickle
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import fcpc
from fcpc import _c

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples/notebooks").glob("*.ipynb"))


class Simulations(unittest.TestCase):
    def setUp(self):
        self.plan = fcpc.program("causal", heads=8, head_dim=64, block=128, cluster=fcpc.Cluster(2, 2, "h100")).plan(
            [1500, 300])

    def test_the_program_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            self.plan.save(f"{folder}/a.plan")
            for profile in (None, "b200"):
                line = [_c.folder() / "fcpc", "sim", f"{folder}/a.plan", "--json"]
                line += ["--profile", profile] if profile else []
                said = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)
                x = self.plan.simulate(profile)
                self.assertEqual(x["profile"], profile or "h100")
                for key, value in x["forward"].items():
                    self.assertEqual(value, said[key], key)
                self.assertEqual(x["backward"]["makespan_s"], said["backward"]["makespan_s"])

    def test_layers(self):
        """Where a program says what linear layers take, a layer takes at least that and at most both parts."""
        plan = fcpc.Program("model { heads = 8; linear = 0.33 us }\nbatch { lengths = [1500, 300] }\n"
                            "cluster { gpus = 4 }\nplan { mask = causal }\n").plan()
        for name, x in plan.simulate().passes():
            self.assertLess(x["linear_s"], x["layer_s"], name)
            self.assertLessEqual(x["layer_s"], x["linear_s"] + x["makespan_s"], name)
        self.assertIn("a layer", repr(plan.simulate()))
        self.assertNotIn("layer_s", self.plan.simulate()["forward"])

    def test_a_profile_of_the_program_chooses_and_predicts(self):
        """Another profile, by its name or as a file: other ranks for the groups, and all predictions are by it."""
        profiles = Path(__file__).resolve().parents[2] / "compiler/simulate/profiles"
        lengths = [96 << 10, 70 << 10, 48 << 10, 30 << 10] + [12 << 10] * 6 + [4096] * 20 + [1024] * 60

        text = """model { heads = 8; kv_heads = 8 }\ncluster { nodes = 4; gpus = 8; inter = 5 GB/s; gpu = h200 }
plan { mask = causal; block = 4K; margin = 16; strategy = groups(tokens = 64K) }"""

        def made(profile):
            return fcpc.parse(text, profile=profile)
        plain, own, cpu = made(None), made("h200"), made("cpu")
        homes = [p.plan(lengths).homes for p in (plain, own, cpu, made(str(profiles / "cpu.profile")))]
        self.assertEqual(homes[0], homes[1])
        self.assertNotEqual(homes[0], homes[2])
        self.assertEqual(homes[2], homes[3])
        self.assertEqual(cpu.plan([4096]).simulate()["profile"], "cpu")
        self.assertIn('"profile": "cpu"', cpu.plan([4096]).html())
        self.assertEqual(cpu.plan([4096]).simulate("a100")["profile"], "a100")
        self.assertNotEqual(plain, cpu)
        again = pickle.loads(pickle.dumps(cpu))
        self.assertEqual((again, again.profile), (cpu, "cpu"))
        self.assertNotEqual(plain._identity(), cpu._identity())  # processes that share plans tell them apart
        self.assertEqual(fcpc.program("causal", profile="cpu").plan([4096]).simulate()["profile"], "cpu")
        for profile, code in (("h1", "E340"), ("./nowhere.profile", "E010")):
            with self.assertRaises(fcpc.Error) as raised:
                made(profile)
            self.assertEqual(raised.exception.code, code)

    def test_micro_batches(self):
        """Each sequence is in one, and each can be planned by groups under its cap."""
        prog = fcpc.parse("""model { heads = 8; kv_heads = 8 }\ncluster { nodes = 1; gpus = 4; gpu = h200 }
plan { mask = causal; block = 1K; strategy = groups(tokens = 8K) }""")
        lengths = [30000, 9000] + [2000] * 40 + [500] * 60
        for keep_order in (False, True):
            made = prog.micro_batches(lengths, least=5, keep_order=keep_order)
            self.assertGreaterEqual(len(made), 5)
            self.assertEqual(sorted(sum(made, [])), list(range(len(lengths))))
            for numbers in made:
                self.assertEqual(numbers, sorted(numbers))
                prog.plan([lengths[n] for n in numbers])
        self.assertEqual(sum(made, []), list(range(len(lengths))))
        with self.assertRaises(fcpc.Error) as raised:
            prog.micro_batches([33000])
        self.assertEqual(raised.exception.code, "E206")

    def test_errors(self):
        for profile, code in (("h1", "E340"), ("./nowhere.profile", "E010")):
            with self.assertRaises(fcpc.Error) as raised:
                self.plan.simulate(profile)
            self.assertEqual(raised.exception.code, code)

    def test_pictures(self):
        """Each is well-formed, and each rank has its bar."""
        x = self.plan.simulate()
        self.assertEqual(len(xml.fromstring(x._repr_html_()).findall(".//svg")), 2)
        for name, p in x.passes():
            bars = xml.fromstring(x._bars(p))
            wide = sum(float(r.get("width")) for r in bars if r.get("y") == "0")
            self.assertAlmostEqual(wide, p["per_rank"][0]["end_s"] / p["makespan_s"] * 600, delta=1)
        self.assertIn("forward", repr(x))
        for shown in (self.plan, fcpc.program("causal", block=256)):
            self.assertIn("<svg", shown._repr_html_())
        fields = fcpc.program("d[q] == d[k]", fields=["d"])._repr_html_()
        self.assertNotIn("<svg", fields)
        self.assertIn("d[q] == d[k]", fields)


class Notebooks(unittest.TestCase):
    """A cell is what IPython makes of it: its statements, and the value of its last expression, which is shown."""

    def run_cell(self, source, names):
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        return None if value is None else value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)

    def test_all(self):
        self.assertTrue(NOTEBOOKS)
        for path in NOTEBOOKS:
            notebook, names, shown, printed = json.loads(path.read_text()), {"__name__": "cell"}, [], io.StringIO()
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), "kept without outputs")
                    with contextlib.redirect_stdout(printed):
                        shown.append(self.run_cell("".join(cell["source"]), names))
            self.assertEqual(sum("<svg" in s for s in shown if s), 4, path)
            self.assertRegex(printed.getvalue(), r"asks whether a symbol is true")
            difference = float(printed.getvalue().split("largest difference:")[1])
            self.assertLess(difference, 1e-5)
