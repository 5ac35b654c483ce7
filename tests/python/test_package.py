"""test_package.py: the wheel, in an environment that has nothing else."""
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
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
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        self.run_in(sys.executable, "-m", "venv", "--without-pip", "clean")
        self.run_in(*pip, "wheel", "--no-index", "-q", "-w", "wheels", str(ROOT))
        wheel, = (where / "wheels").glob("fcpc-*-py3-none-manylinux_2_*.whl")
        self.run_in(*pip, "--python", "clean/bin/python", "install", "--no-index", "-q", str(wheel))
        program = "import fcpc; p = fcpc.program('causal', block=64).plan([100]); print(p.digest, fcpc.__version__)"
        self.assertRegex(self.run_in("clean/bin/python", "-c", program), r"^[0-9a-f]{64} \d+\.\d+\.\d+\n$")
        self.assertEqual(self.run_in("clean/bin/python", "-m", "fcpc", "--version"),
                         self.run_in("clean/bin/fcpc", "--version"))
        self.assertIn("right", self.run_in("clean/bin/fcpc", "run", str(ROOT / "examples/window.fcp"),
                                           "-D", "batch.lengths=[512]", "-D", "plan.block=128"))
        done = subprocess.run([where / "clean/bin/fcpc", "nothing.fcp"], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.look_into(wheel)

    def look_into(self, wheel):
        """It holds what it needs, and the licence of everything that is not ours."""
        names = zipfile.ZipFile(wheel).namelist()
        for name in ("libfcp.so", "libfcpc.so", "fcpc"):
            self.assertIn(f"fcpc/lib/{name}", names)
        licences = [n for n in names if "/licenses/" in n]
        bundled = [n for n in names if n.startswith("fcpc/lib/") and ".so." in n]
        self.assertEqual(len(licences), 1 + len(bundled), names)
        self.assertFalse([n for n in names if n.endswith((".pyc", ".o", ".a"))])
