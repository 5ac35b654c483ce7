"""test_package.py: the wheel, where there is nothing else; an editable installation; the source archive."""
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = os.environ.get("FCPC_BUILD", "build")
# What pip needs to build without the network: hatchling of the tests' environment.
BUILDER = sysconfig.get_path("purelib")
# What the wheel must bring along, wherever else it is.
BROUGHT = ("libopenblas", "libgfortran", "libquadmath", "libisal", "libnettle")


def run(*command, folder=None, **more):
    """What a command prints, in an environment that has no fcpc."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FCPC_LIBRARIES")}
    done = subprocess.run(list(map(str, command)), cwd=folder, env={**environment, **more}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}")
    return done.stdout


def pip(python, *arguments, **more):
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments, "--no-index",
               "-q", **more)


class Installed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def environment(self):
        run(sys.executable, "-m", "venv", "--without-pip", self.folder / "clean")
        return self.folder / "clean/bin"

    def works(self, programs):
        """The package and the program, of this environment."""
        said = run(programs / "python", "-c", "import fcpc; p = fcpc.program('causal', block=64, cluster=fcpc.detect("
                   "ranks=2)).plan([4096]); print(p.digest, fcpc.__version__)", folder=self.folder)
        self.assertRegex(said, r"^[0-9a-f]{64} \d+\.\d+\.\d+\n$")
        version = run(programs / "fcpc", "--version", folder=self.folder)
        self.assertEqual(run(programs / "python", "-m", "fcpc", "--version", folder=self.folder), version)
        self.assertIn(said.split()[1], version)
        done = subprocess.run([programs / "fcpc", "nothing.fcp"], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)


class Wheel(Installed):
    """That of make wheel."""

    @classmethod
    def setUpClass(cls):
        # packed as fast as can be
        run("make", "-s", "wheel", f"B={BUILD}", f"PYTHON={sys.executable}", folder=ROOT,
            AUDITWHEEL_ZIP_COMPRESSION_LEVEL="1", MAKEFLAGS="")
        cls.wheel, = (ROOT / BUILD / "dist").glob("*.whl")

    def test_a_clean_environment(self):
        programs = self.environment()
        pip(programs / "python", "install", "--no-compile", self.wheel)
        self.works(programs)

    def test_its_files(self):
        """It holds what it needs, the licence of everything that is not ours, and types."""
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            record = next(name for name in names if name.endswith("/WHEEL"))
            self.assertIn("Tag: " + re.search(r"py3-none-\w+", self.wheel.name)[0], wheel.read(record).decode())
        for name in ("libfcp.so", "libfcpc.so", "fcpc", "libopenblas.so.0"):
            self.assertIn(f"fcpc/lib/{name}", names)
        self.assertIn("fcpc/py.typed", names)
        licences = [n for n in names if "/licenses/" in n and not n.endswith("/")]
        bundled = [n for n in names if "/" in n and ".so." in n]
        self.assertEqual(len(licences), 1 + len(bundled), names)
        self.assertFalse([n for n in names if n.endswith((".pyc", ".o", ".a"))])

    def test_its_tag(self):
        """It is what auditwheel finds: no older Linux has all that the wheel asks for."""
        tag = re.search(r"manylinux_2_\d+_\w+", self.wheel.name)[0]
        said = " ".join(run(sys.executable, "-m", "auditwheel", "show", self.wheel).split())
        self.assertIn(f'consistent with the following platform tag: "{tag}"', said)

    def test_it_computes_anywhere(self):
        """In a root folder that has Python, the C library, and nothing else: a plan, both passes and the program."""
        bwrap = shutil.which("bwrap")
        if not bwrap or subprocess.run([bwrap, "--ro-bind", "/", "/", "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no bwrap (bubblewrap), or it may not make namespaces")
        site = self.folder / "site"
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(site)
        (site / "fcpc/lib/fcpc").chmod(0o755)
        python, stdlib = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
        modules = run(python, "-S", "-c", "import array, sys, fcpc; print(*(m.__file__ for m in sys.modules.values() "
                      "if str(getattr(m, '__file__', None)).endswith('.so')))", PYTHONPATH=str(site)).split()
        libraries = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
        files = {run("gcc", f"-print-file-name={name}").strip() for name in libraries}
        files.update(re.findall(r"(/\S+) \(0x", run("ldd", python, *modules)))
        files = {os.path.normpath(file) for file in files if os.path.isabs(file)}
        self.assertFalse([f for f in files if any(name in f for name in BROUGHT)], "the root is not bare")
        bind = [word for file in sorted(files) for word in ("--ro-bind", file, file)]
        for folder in {os.path.dirname(python), stdlib}:
            bind += ["--ro-bind", folder, folder]
        said = run(bwrap, "--unshare-all", "--die-with-parent", *bind, "--dev", "/dev", "--proc", "/proc", "--tmpfs",
                   "/tmp", "--ro-bind", site, "/site", "--ro-bind", HERE / "bare.py", "/bare.py", "--ro-bind",
                   ROOT / "examples/window.fcp", "/window.fcp", "--clearenv", "--setenv", "PYTHONPATH", "/site",
                   "--setenv", "PYTHONHOME", sys.base_prefix, python, "-S", "-B", "/bare.py", "/window.fcp")
        self.assertEqual(said.splitlines()[-1], "[right]", said)


class Sources(Installed):
    def test_editable(self):
        """The package is that of the tree, with the libraries that make builds there."""
        programs = self.environment()
        pip(programs / "python", "install", "--no-build-isolation", "-e", ROOT, PYTHONPATH=BUILDER)
        self.works(programs)
        where = run(programs / "python", "-c", "import fcpc, fcpc._c; print(fcpc.__file__, fcpc._c.folder())",
                    folder=self.folder).split()
        self.assertEqual(where, [str(ROOT / "runtime/python/fcpc/__init__.py"), str(ROOT / BUILD)])

    def test_archive(self):
        """It has what git has, and no more."""
        stray = ROOT / "runtime/python/fcpc/stray_of_a_test.py"
        stray.touch()
        self.addCleanup(stray.unlink)
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", self.folder, folder=ROOT)
        file, = self.folder.glob("*.tar.gz")
        with tarfile.open(file) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertEqual(names, {*run("git", "ls-files", folder=ROOT).splitlines(), "PKG-INFO"})


class Libraries(unittest.TestCase):
    def test_of_another_version(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        other = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libm" in line)
        for name in ("libfcp.so", "libfcpc.so"):  # any library that has none of our functions
            (Path(folder.name) / name).symlink_to(other)
        environment = {**os.environ, "FCPC_LIBRARIES": folder.name}
        done = subprocess.run([sys.executable, "-c", "import fcpc"], env=environment, stderr=subprocess.PIPE, text=True)
        self.assertIn("ImportError: ", done.stderr)
        self.assertIn("libfcp.so is not of this version of fcpc: it has no fcp", done.stderr)

    def test_that_need_others(self):
        """A library that is there, and needs one that is not: the error names both."""
        with tempfile.TemporaryDirectory() as folder:
            named = shutil.copy(ROOT / BUILD / "standin/libnccl.so", f"{folder}/libopenblas.so.0")
            done = subprocess.run([ROOT / BUILD / "fcpc", "run", ROOT / "examples/window.fcp", "-D",
                                   "batch.lengths=[512]", "-D", "plan.block=128"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, "FCP_OPENBLAS": named})
        self.assertRegex(done.stderr, r"\[E702\]: OpenBLAS cannot be loaded: \S+libopenblas.so.0: libcuda.so: cannot")


del Installed  # it has no tests of its own


if __name__ == "__main__":
    unittest.main()
