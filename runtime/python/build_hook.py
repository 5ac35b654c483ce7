"""build_hook.py: the hook that hatchling calls to build the package (pyproject.toml). It runs make for all that is not
Python.

A wheel contains the package; the two libraries and the program, as make links them for a wheel; OpenBLAS, which
libfcp.so loads by its name; and the licences of all. It depends on no version of Python or torch. Other libraries that
these files need are not in it. So such a wheel is for the machine that has built it, and its tag says so. `make wheel`
runs auditwheel, which adds those libraries and finds out on how old a Linux the wheel works.

An editable installation (pip install -e) uses the libraries of the build folder. A source archive has what git has.
FCPC_BUILD names the build folder, and FCPC_MAKE the make that fills it; without them they are `build` and `make`.
"""
from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]
LINKED = ["libfcp.so", "libfcpc.so", "fcpc"]
OPENBLAS = "libopenblas.so.0"  # its first name in runtime/host/blas.c
# Where a system has several, the one for threads comes first: any of ours may call it.
OPENBLAS_FILES = ["libopenblasp.so.0", OPENBLAS]
# Every Linux that wheels are for has these.
EVERYWHERE = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s))\.so.*")


def run(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def make(*targets: str) -> Path:
    """Lets make build the targets, and returns the build folder."""
    build, command = os.environ.get("FCPC_BUILD", "build"), os.environ.get("FCPC_MAKE", "make").split()
    outside = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    subprocess.run([*command, f"-j{os.cpu_count() or 1}", f"B={build}", *targets], cwd=ROOT, check=True, stdout=2,
                   env=outside)
    return ROOT / build


def openblas() -> Path:
    """The file of OpenBLAS: FCP_OPENBLAS, or where the compiler looks for libraries."""
    found = [os.environ.get("FCP_OPENBLAS", ""),
             *(run(os.environ.get("CC", "gcc"), f"-print-file-name={name}").strip() for name in OPENBLAS_FILES)]
    for file in found:
        if os.path.isabs(file):
            return Path(file)
    raise SystemExit("fcpc: OpenBLAS is not here, and the package computes with it on the CPU: install it (Debian: "
                     "libopenblas0), or name its file in FCP_OPENBLAS")


def needed(file: Path) -> list[Path]:
    """The libraries that a binary needs beside those that are everywhere, and those that these need."""
    pairs = [re.match(r"\s*(\S+) => (/\S+)", line) for line in run("ldd", str(file)).splitlines()]
    return [Path(m[2]) for m in pairs if m and not EVERYWHERE.fullmatch(m[1]) and not m[1].startswith("libfcp")]


def licence_of_debian(file: Path) -> tuple[str, bytes] | None:
    """(package, its licence) of a file of a Debian package, which may know it by the name without /usr."""
    real = file.resolve()
    for known in (str(real), str(real).replace("/usr/", "/", 1)):
        done = subprocess.run(["dpkg-query", "-S", known], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = Path("/usr/share/doc", done.stdout.split(":")[0], "copyright")
        if done.returncode == 0 and text.exists():
            return text.parent.name, text.read_bytes()
    return None


def licence_of_rpm(file: Path) -> tuple[str, bytes] | None:
    """The same of a file of an RPM package. What is made of one source may have its licence in another package."""
    source = run("rpm", "-qf", "--qf", "%{SOURCERPM}", str(file))
    packages = [line.split() for line in run("rpm", "-qa", "--qf", "%{NAME} %{SOURCERPM}\n").splitlines()]
    texts = run("rpm", "-q", "--licensefiles", *(name for name, of in packages if of == source)).split()
    return (source, b"\n".join(Path(text).read_bytes() for text in texts)) if texts else None


def licence(file: Path) -> tuple[str, bytes]:
    """(package, its licence) of a library of the system."""
    system = licence_of_debian if Path("/var/lib/dpkg/status").exists() else licence_of_rpm
    found = system(file)
    if found is None:
        raise SystemExit(f"fcpc: {file} would be in the wheel, and its licence is not known: no package has it")
    return found


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it packs: it may add files, as {where they are: where they go}."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes the files of a wheel, of an editable installation or of a source archive, and adds them."""
        files = build_data["force_include"]
        if self.target_name == "sdist":
            files.update({str(ROOT / name): name for name in run("git", "ls-files").splitlines()})
            return
        if version == "editable":
            make("shared", "all")
            return
        built = make("wheel-files") / "wheel"
        blas = openblas()
        files.update({str(built / name): f"fcpc/lib/{name}" for name in LINKED})
        files[str(blas.resolve())] = f"fcpc/lib/{OPENBLAS}"
        foreign = {blas, *(library for file in (*(built / name for name in LINKED), blas) for library in needed(file))}
        texts = built / "licences"
        texts.mkdir(exist_ok=True)
        for name, text in map(licence, sorted(foreign)):
            (texts / name).write_bytes(text)
            files[str(texts / name)] = f"{self.metadata.core.name}-{self.metadata.version}.dist-info/licenses/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
