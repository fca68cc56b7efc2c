"""Run a marked subset of the tests with old and new releases of Python and torch: make matrix [MATRIX="trixie forky"].

Each row has an environment of its own: this project's `.venv`, a Debian release in `.matrix/NAME` with the
distribution's builds of torch for the CPU (made by mmdebstrap, which needs root), or a Python of this machine with torch
from PyPI (5 GB in `.matrix/NAME`, as its builds hold CUDA libraries). The table goes to `docs/versions.md`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
PACKAGES = "python3-torch python3-numpy python3-pytest python3-hypothesis python3-pil python3-pandas".split()
TESTS = ["-p", "no:cacheprovider", "-m", "matrix and not slow", "tests"]
ASK = "import platform, torch; print(platform.python_version(), torch.__version__.partition('+')[0])"
CUDA = "PyPI, build for CUDA on a CPU"
OLD = "Debian 13"  # below the floor: shows what would have to be mended


@dataclass(frozen=True)
class Row:
    """A release of Debian, a Python with torch from PyPI, or, with neither, this project's .venv."""

    name: str
    builds: str
    mirror: str | None = None
    pypi: tuple[str, str] | None = None  # Python and torch


ROWS = [
    Row("trixie", OLD, "http://deb.debian.org/debian"),
    Row("python3.11", CUDA, pypi=("3.11", "2.9.1")),
    Row("venv", "PyPI, the pin of `constraints.txt`"),
    Row("python3.12", CUDA, pypi=("3.12", "2.13.0")),
    Row("python3.13", CUDA, pypi=("3.13", "2.15.0")),
    Row("forky", "Debian testing", "http://deb.debian.org/debian"),
]


def prepare(row: Row) -> list[str]:
    """Make the environment of a row; the words that start its Python on a copy of the sources."""
    place = ROOT / ".matrix" / row.name
    if row.pypi:
        return [str(install(place, find_python(row.pypi[0]) or sys.executable, row.pypi[1]))]
    if row.mirror is None:
        return [str(ROOT / ".venv" / "bin" / "python")]
    if not (place / "usr" / "bin" / "python3").exists():
        if shutil.which("mmdebstrap") is None:
            raise SystemExit("make matrix: install mmdebstrap first (Debian: apt-get install mmdebstrap)")
        stale = 'Acquire::Check-Valid-Until "false"'  # a mirror may lag behind; signatures are checked all the same
        source = f"deb {row.mirror} {row.name} main"
        include = f"--include={','.join(PACKAGES)}"
        subprocess.run(["mmdebstrap", f"--aptopt={stale}", "--variant=apt", include, row.name, place, source], check=True)
    sources = place / "cafexai"
    shutil.rmtree(sources, ignore_errors=True)
    for part in ("src", "tests", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / part, sources / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / file, sources / file)
    quiet = ["unshare", "--mount", "sh", "-c", f'mount -t proc proc {place}/proc && exec "$@"', "sh"]  # torch reads /proc
    return [*quiet, "chroot", str(place), "env", "-C", "/cafexai", "OMP_NUM_THREADS=1", "PYTHONPATH=/cafexai/src", "python3"]


def install(place: Path, base: str, torch: str) -> Path:
    """Make a virtual environment of a Python of this machine, with torch and what the tests need; its Python."""
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([base, "-m", "venv", place], check=True)
        packages = [f"torch=={torch}", "numpy", "pytest", "hypothesis", "pillow", "pandas"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages], check=True)
        (place / "ready").touch()
    return python


def find_python(version: str) -> str | None:
    """A Python of this version that starts: on the path, or one of pyenv; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    for python in [*([named] if named else []), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]:
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:  # shims of pyenv may not
            return python
    return None


def run(row: Row) -> list[str]:
    """The line of a row: Python, torch, where the build comes from, the day, tests that passed, failed and were skipped."""
    python = prepare(row)
    versions = subprocess.run([*python, "-c", ASK], capture_output=True, text=True, check=True).stdout.split()
    marked = os.environ | {"CAFEXAI_MATRIX": "1", "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    words = [*python, "-m", "pytest", *TESTS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=marked)
    (ROOT / ".matrix").mkdir(exist_ok=True)
    (ROOT / ".matrix" / f"{row.name}.log").write_text(done.stdout + done.stderr)
    return [*versions, row.builds, date.today().isoformat(), *count(done.stdout)]


def count(said: str) -> list[str]:
    """Numbers of passed, failed and skipped tests in the last line of pytest."""
    last = (said.strip().splitlines() or [""])[-1]
    found = {word: number for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    if "passed" not in found:
        raise SystemExit(f"make matrix: pytest did not end with a count:\n{said[-2000:]}")
    failed = int(found.get("failed", 0)) + int(found.get("error", 0))
    return [found["passed"], str(failed), found.get("skipped", "0")]


def write(lines: list[list[str]]) -> None:
    """Put the rows into the page; rows that did not run now stay."""
    text = PAGE.read_text(encoding="utf-8")
    head, table, rest = re.split(r"<!-- matrix -->\n", text)
    old = {tuple(cells[:3]): cells for cells in read_rows(table)}
    all_rows = old | {tuple(cells[:3]): cells for cells in lines}
    ordered = sorted(all_rows.values(), key=lambda cells: [int(part) for cell in cells[1::-1] for part in cell.split(".")])
    body = "".join(f"| {' | '.join(cells)} |\n" for cells in ordered)
    titles = "| Python | torch | build | ran | passed | failed | skipped |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    PAGE.write_text(f"{head}<!-- matrix -->\n{titles}{body}<!-- matrix -->\n{rest}", encoding="utf-8")


def read_rows(table: str) -> list[list[str]]:
    """The cells of the lines below the titles."""
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines() if line.startswith("|")]
    return lines[2:]


def main() -> None:
    """Run the rows that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(row.name for row in ROWS))
    wanted = parser.parse_args().rows or [row.name for row in ROWS]
    unknown = set(wanted) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"unknown rows {sorted(unknown)}. Allowed values: {[row.name for row in ROWS]}.")
    lines = []
    for row in ROWS:
        if row.name not in wanted:
            continue
        if row.pypi and find_python(row.pypi[0]) is None:
            print(f"{row.name}: not run, there is no such Python here", flush=True)
            continue
        lines.append(run(row))
        print(" ".join(lines[-1]), flush=True)
    write(lines)
    if any(cells[5] != "0" for cells in lines if cells[2] != OLD):
        sys.exit("make matrix: tests failed; .matrix/NAME.log has what pytest said")


if __name__ == "__main__":
    main()
