"""pack.py VERSION OUT.vsix [--without-client]: packs the extension of VS Code.

A .vsix is a zip archive: a list of content types, a manifest, and the folder `extension`. Times and modes in it are
fixed, so the same files give the same bytes. npm brings vscode-languageclient, unless that is not asked for; where npm
is missing or reaches nothing, the package is made without, and a line says so.
"""
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr as quoted

HERE = Path(__file__).resolve().parent
OWN = ["README.md", "extension.js", "language-configuration.json"]
TYPES = {".json": "application/json", ".js": "application/javascript", ".md": "text/markdown",
         ".vsixmanifest": "text/xml", ".txt": "text/plain"}


def manifest(package):
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={quoted(package["name"])} Version={quoted(package["version"])} Publisher={quoted(package["publisher"])}/>
    <DisplayName>{package["displayName"]}</DisplayName>
    <Description xml:space="preserve">{package["description"]}</Description>
    <Categories>{",".join(package["categories"])}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={quoted(package["engines"]["vscode"])}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace"/>
    </Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def content_types(names):
    endings = sorted({Path(name).suffix for name in names} & set(TYPES))
    rows = "".join(f'<Default Extension="{e}" ContentType="{TYPES[e]}"/>' for e in endings)
    parts = "".join(f'<Override PartName={quoted("/" + n)} ContentType="application/octet-stream"/>'
                    for n in sorted(names) if Path(n).suffix not in TYPES)
    return ('<?xml version="1.0" encoding="utf-8"?>\n'
            f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{rows}{parts}</Types>\n')


def client_files(package, folder):
    """The files of vscode-languageclient and of what it needs, by their names; none where npm cannot bring them."""
    wanted = [f"{name}@{version}" for name, version in package["dependencies"].items()]
    # what the library needs, as it was at a date: so the package stays the same
    options = ["--before=2024-06-01", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", "--loglevel=error"]
    try:
        subprocess.run(["npm", "install", "--prefix", folder, *options, *wanted], check=True, capture_output=True,
                       timeout=300)
    except (OSError, subprocess.SubprocessError):
        print(f"vscode: npm does not bring {wanted[0]}: this package has colours only", file=sys.stderr)
        return {}
    modules = Path(folder) / "node_modules"
    return {f"extension/node_modules/{path.relative_to(modules)}": path.read_bytes() for path in modules.rglob("*")
            if path.is_file() and not path.is_symlink() and not path.relative_to(modules).parts[0].startswith(".")}


def pack(version, out, with_client):
    package = json.loads((HERE / "package.json").read_text())
    package["version"] = version
    files = {f"extension/{name}": (HERE / name).read_bytes() for name in OWN}
    files["extension/fcp.tmLanguage.json"] = (HERE.parent / "fcp.tmLanguage.json").read_bytes()
    files["extension/LICENSE.txt"] = (HERE.parents[2] / "LICENSE").read_bytes()
    if with_client:
        with tempfile.TemporaryDirectory() as folder:
            files.update(client_files(package, folder))
    files["extension/package.json"] = (json.dumps(package, indent=2) + "\n").encode()
    files["extension.vsixmanifest"] = manifest(package).encode()
    files["[Content_Types].xml"] = content_types(files).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".part")
    with zipfile.ZipFile(beside, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)  # of 1980, the first year of zip
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    shutil.move(beside, out)
    print(out)


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--without-client"]
    if len(arguments) != 2:
        sys.exit("usage: pack.py VERSION OUT.vsix [--without-client]")
    pack(arguments[0], Path(arguments[1]), "--without-client" not in sys.argv)
