"""Build wheel and sdist, check them, and try the wheel in an empty environment: make release, or make release TAG=1 to tag.

Files go to dist/: wheel, sdist, release notes, bills of materials (CycloneDX) of the package and of the image, and checksums.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TOOLS = Path(sys.executable).parent
OFFLINE = """
import sys
def refuse(event, details):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise OSError(f"offline: {event} {details[-1]}")
sys.addaudithook(refuse)
"""


def call(*words: object) -> None:
    """Run a command, and end with it if it fails."""
    done = subprocess.run([str(word) for word in words], check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"make release: {' '.join(map(str, words[:3]))} ended with {done.returncode}")


def notes_of(changelog: str, version: str) -> str:
    """The section of a version; 0.2.0 and 0.2.0.dev0 are in that of 0.2."""
    short = re.sub(r"\.dev\d+$", "", version)
    names = "|".join(map(re.escape, {short, short.removesuffix(".0")}))
    found = re.search(rf"^## (?:{names})(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"make release: CHANGELOG.md has no section for {version}")
    return found[1].strip() + "\n"


def check_wheel(path: Path) -> str:
    """Refuse a wheel without licence, type marker or true metadata; its version."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = message_from_bytes(wheel.read(next(name for name in names if name.endswith(".dist-info/METADATA"))))
    faults = [part for part in ("licenses/LICENSE", "cafexai/py.typed") if not any(name.endswith(part) for name in names)]
    faults += [name for name in names if not name.startswith("cafexai")]
    faults += [field for field in ("License-Expression", "Requires-Python", "Project-URL") if not metadata[field]]
    if faults:
        raise SystemExit(f"make release: {path.name}: missing or out of place: {', '.join(faults)}")
    return metadata["Version"]


def check_sdist(path: Path) -> None:
    """Refuse an archive that lacks what is needed to build the wheel again."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = {"LICENSE", "README.md", "pyproject.toml", "src/cafexai/__init__.py"} - names
    if missing:
        raise SystemExit(f"make release: {path.name} lacks {sorted(missing)}")


def quick_start() -> str:
    """The code of README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def try_wheel(wheel: Path, folder: Path) -> Path:
    """Install the wheel into an empty environment and run README's code there, offline; the environment's Python."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    call(
        python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"cafexai[plot] @ {wheel.as_uri()}"
    )
    script = folder / "quick_start.py"
    check = 'import cafexai\nassert "site-packages" in cafexai.__file__, cafexai.__file__\n'
    script.write_text(OFFLINE + check + quick_start(), encoding="utf-8")
    done = subprocess.run([python, "-I", script], cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"make release: README's code fails in an empty environment:\n{done.stderr}")
    print(done.stdout)
    return python


def main() -> None:
    """All steps in order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", action="store_true", help="tag the commit; needs a final version and a clean tree")
    tag = parser.parse_args().tag
    call(TOOLS / "hadolint", "Dockerfile")
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    call(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    version = check_wheel(wheel)
    check_sdist(sdist)
    notes = DIST / f"notes-{version}.md"
    notes.write_text(notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        python = try_wheel(wheel, Path(folder))
        call(TOOLS / "cyclonedx-py", "environment", "--output-file", DIST / f"cafexai-{version}.cdx.json", python)
    image = DIST / f"cafexai-{version}-image.cdx.json"
    call(TOOLS / "cyclonedx-py", "requirements", "--output-file", image, ROOT / "release" / "locks" / "image.txt")
    files = sorted(file for file in DIST.iterdir() if file.is_file())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums)
    if tag:
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        if "dev" in version or changed:
            raise SystemExit(f"make release TAG=1: version {version} must be final, and everything committed")
        call("git", "tag", "--annotate", f"v{version}", "--file", notes)


if __name__ == "__main__":
    main()
