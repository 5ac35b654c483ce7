"""wheel.py: makes the wheel of the package, for `pip install .` and `pip wheel .` (PEP 517).

The wheel is pure data to Python: the package, the two libraries and the program as make links them, the libraries of
other projects that these need, and the licences of all. It depends on no version of Python and of torch, so it is
tagged py3-none-manylinux_2_N: N is the newest version of the C library that anything in it asks for.

FCPC_BUILD names the build folder, FCPC_MAKE the make that fills it; `build` and `make` unless they are set.
"""
import base64
import hashlib
import os
import platform
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKED = ["libfcp.so", "libfcpc.so", "fcpc"]
DLOPENED = ["libopenblas.so.0"]  # of runtime/host/blas.c: looked for when the host backend first computes
# Every Linux that wheels are for has these.
EVERYWHERE = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s))\.so.*")


def _run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _project():
    """(name, value) of the lines of [project] that are needed here; a whole TOML reader is not in all Pythons."""
    text = (ROOT / "pyproject.toml").read_text()
    found = dict(re.findall(r'^([a-z-]+) = "(.*)"$', text.split("[project]")[1], re.M))
    found["version"] = re.search(r'define FCP_VERSION "(.*)"', (ROOT / "runtime/fcp.h").read_text())[1]
    found["script"] = re.search(r"scripts = { (.*?) = \"(.*)\" }", text).groups()
    extras = re.search(r"^optional-dependencies = { (.*) }$", text, re.M)[1]
    found["extras"] = [(extra, name) for extra, names in re.findall(r"(\w+) = \[(.*?)\]", extras)
                       for name in re.findall(r'"(.*?)"', names)]
    return found


def _needed(file):
    """The libraries that a binary needs beside those that are everywhere: {name: path}."""
    lines = _run("ldd", str(file)).splitlines()
    pairs = [re.match(r"\s*(\S+) => (\S+)", line) for line in lines]
    return {m[1]: Path(m[2]) for m in pairs if m and not EVERYWHERE.fullmatch(m[1]) and not m[1].startswith("libfcp")}


def _bundled(built):
    """The libraries of other projects that go into the wheel: {name: path}."""
    found = {}
    for file in LINKED:
        found.update(_needed(built / file))
    for line in _run("sh", "-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p").splitlines():
        name, _, path = line.strip().partition(" (")
        if name in DLOPENED and platform.machine().replace("_", "-") in path:
            found.setdefault(name, Path(path.split("=> ")[1]))
    missing = set(DLOPENED) - set(found)
    if missing:
        print(f"fcpc: {', '.join(sorted(missing))} is not here, so the wheel does not carry it: the host backend "
              f"needs it where the wheel is used (FCP_OPENBLAS)")
    for path in list(found.values()):
        found.update(_needed(path))
    return found


def _licence(path):
    """(name, text) of the licence of a library, as its Debian package has it."""
    for known in (path, path.resolve(), Path("/usr") / path.relative_to("/")):
        owner = subprocess.run(["dpkg-query", "-S", str(known)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True).stdout.split(":")[0]
        text = Path("/usr/share/doc") / owner / "copyright"
        if owner and text.exists():
            return owner, text.read_bytes()
    raise SystemExit(f"fcpc: {path} would be in the wheel, and its licence is not known: no Debian package has it")


def _tag(files):
    """The platform tag: the newest GLIBC_2.N that a file asks for."""
    newest = 17
    for file in files:
        newest = max([newest, *map(int, re.findall(r"GLIBC_2\.(\d+)", _run("objdump", "-T", str(file))))])
    return f"py3-none-manylinux_2_{newest}_{platform.machine()}"


def _metadata(p):
    lines = ["Metadata-Version: 2.1", f"Name: {p['name']}", f"Version: {p['version']}", f"Summary: {p['description']}",
             "License: Apache-2.0", f"Requires-Python: {p['requires-python']}",
             *(f"Provides-Extra: {extra}" for extra in sorted({extra for extra, _ in p["extras"]})),
             *(f"Requires-Dist: {name}; extra == '{extra}'" for extra, name in p["extras"]),
             "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join(lines)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    p, build = _project(), os.environ.get("FCPC_BUILD", "build")
    jobs = f"-j{os.cpu_count() or 1}"
    outside = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    subprocess.run([*os.environ.get("FCPC_MAKE", "make").split(), jobs, f"B={build}", "wheel-files"], cwd=ROOT,
                   check=True, stdout=2, env=outside)
    built = ROOT / build / "wheel"
    bundled = _bundled(built)
    tag = _tag([*(built / name for name in LINKED), *bundled.values()])
    info = f"{p['name']}-{p['version']}.dist-info"
    files = {f"fcpc/{f.name}": f.read_bytes() for f in sorted((ROOT / "runtime/python/fcpc").glob("*.py"))}
    files.update({f"fcpc/lib/{name}": (built / name).read_bytes() for name in LINKED})
    files.update({f"fcpc/lib/{name}": path.read_bytes() for name, path in sorted(bundled.items())})
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files.update({f"{info}/licenses/{name}": text for name, text in sorted(map(_licence, bundled.values()))})
    files[f"{info}/METADATA"] = _metadata(p).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: fcpc\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = "[console_scripts]\n{} = {}\n".format(*p["script"]).encode()
    rows = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
            for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    name = f"{p['name']}-{p['version']}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # with no time of today: the same tree gives the same wheel
            entry.external_attr = (0o100755 if path.startswith("fcpc/lib/") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    p = _project()
    name = f"{p['name']}-{p['version']}"
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in _run("git", "ls-files").splitlines():
            archive.add(ROOT / file, f"{name}/{file}", recursive=False)
        note = Path(sdist_directory) / "PKG-INFO"
        note.write_text(_metadata(p))
        archive.add(note, f"{name}/PKG-INFO")
        note.unlink()
    return f"{name}.tar.gz"
