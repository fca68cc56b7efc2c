"""Studies as a user starts them: by the command line, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def command(name, out, *options):
    """The words that start a study at toy size."""
    return [
        sys.executable,
        "-m",
        "cafexai",
        "study",
        name,
        "--preset",
        "toy",
        "--out",
        str(out),
        "--models",
        str(out / "models"),
        *map(str, options),
    ]


def environment():
    """Without a data folder: tests must not depend on one. One thread, so that results are the same everywhere."""
    kept = {key: value for key, value in os.environ.items() if key != "CAFEXAI_DATA"}
    return kept | {"OMP_NUM_THREADS": "1"}


def finished(name, out, *options):
    """Run a study to its end; its results and what it said."""
    done = subprocess.run(command(name, out, *options), capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert f"{name} (toy)" in done.stdout
    return json.loads((out / "results.json").read_text()), done.stdout


def written(out):
    """Names of the files of a result, apart from its parts and models."""
    return {path.name for path in out.iterdir() if path.is_file()}
