"""test_package.py: the wheel, in an environment that has nothing else."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FCPC_LIBRARIES")}

    def run_in(self, *command):
        done = subprocess.run(command, cwd=self.folder.name, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_clean_environment(self):
        where = Path(self.folder.name)
        self.run_in(sys.executable, "-m", "venv", "--without-pip", "clean")
        self.run_in(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", "clean/bin/python",
                    "install", "--no-index", "--no-compile", "-q", str(ROOT))
        program = "import fcpc; p = fcpc.program('causal', block=64).plan([100]); print(p.digest, fcpc.__version__)"
        self.assertRegex(self.run_in("clean/bin/python", "-c", program), r"^[0-9a-f]{64} \d+\.\d+\.\d+\n$")
        self.assertEqual(self.run_in("clean/bin/python", "-m", "fcpc", "--version"),
                         self.run_in("clean/bin/fcpc", "--version"))
        self.assertIn("right", self.run_in("clean/bin/fcpc", "run", str(ROOT / "examples/window.fcp"),
                                           "-D", "batch.lengths=[512]", "-D", "plan.block=128"))
        done = subprocess.run([where / "clean/bin/fcpc", "nothing.fcp"], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        info, = where.glob("clean/lib/python*/site-packages/fcpc-*.dist-info")
        self.assertRegex((info / "WHEEL").read_text(), r"\nTag: py3-none-manylinux_2_\d+_\w+\n")
        self.look_into([line.split(",")[0] for line in (info / "RECORD").read_text().split()])

    def test_libraries_of_another_version(self):
        other = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libm" in line)
        for name in ("libfcp.so", "libfcpc.so"):  # any library that has none of our functions
            (Path(self.folder.name) / name).symlink_to(other)
        environment = {**os.environ, "FCPC_LIBRARIES": self.folder.name}
        done = subprocess.run([sys.executable, "-c", "import fcpc"], env=environment, stderr=subprocess.PIPE, text=True)
        self.assertIn("ImportError: ", done.stderr)
        self.assertIn("libfcp.so is not of this version of fcpc: it has no fcp", done.stderr)

    def look_into(self, names):
        """The wheel holds what it needs, and the licence of everything that is not ours."""
        for name in ("libfcp.so", "libfcpc.so", "fcpc"):
            self.assertIn(f"fcpc/lib/{name}", names)
        licences = [n for n in names if "/licenses/" in n]
        bundled = [n for n in names if n.startswith("fcpc/lib/") and ".so." in n]
        self.assertEqual(len(licences), 1 + len(bundled), names)
        self.assertFalse([n for n in names if n.endswith((".pyc", ".o", ".a"))])
