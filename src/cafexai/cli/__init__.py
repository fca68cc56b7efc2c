"""The entry point of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Whatever goes wrong ends in one line and a code; see ``cafexai --help``."""
    try:
        from .app import app
        from .errors import run
    except ModuleNotFoundError as error:
        print(f"cafexai: the command line needs {error.name}: pip install 'cafexai[cli]'.", file=sys.stderr)
        sys.exit(6)
    sys.exit(run(app, sys.argv[1:]))


if __name__ == "__main__":
    main()
