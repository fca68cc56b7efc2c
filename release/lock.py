"""Write pinned versions with hashes: make lock. Torch is the CPU build; set UV_FIND_LINKS or UV_INDEX if it is elsewhere.

`release/locks/tested.txt` is what the tests run with, `image.txt` what the image holds, `build.txt` what builds the wheel.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "release" / "locks"
UV = Path(sys.executable).parent / "uv"
SETS = {  # extras of the package and dependency groups
    "tested": ["--extra", "all", "--group", "dev", "--group", "browser"],
    "image": [word for name in ("serve", "batch", "s3", "io", "onnx", "skops") for word in ("--extra", name)],
}
HEAD = "# Made by make lock: Python 3.11 on Linux (x86_64).\n"
CPU = "--extra-index-url https://download.pytorch.org/whl/cpu\n"


def compile_lock(name: str, *sources: object, head: str = HEAD) -> None:
    """Resolve, and write a file that does not say where this was done."""
    words = [UV, "pip", "compile", "--quiet", "--no-header", "--generate-hashes", "--python-version", "3.11"]
    words += ["--python-platform", "x86_64-manylinux_2_28", *sources]
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"make lock: {name}: {done.stderr}")
    (LOCKS / f"{name}.txt").write_text(head + done.stdout, encoding="utf-8")


def main() -> None:
    """All three files."""
    for name, chosen in SETS.items():
        compile_lock(name, "pyproject.toml", "--constraint", "constraints.txt", *chosen, head=HEAD + CPU)
    (LOCKS / "build.in").write_text("hatchling\n", encoding="utf-8")
    compile_lock("build", "release/locks/build.in")


if __name__ == "__main__":
    main()
