"""The entry point of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Whatever goes wrong with what the user gave ends in one message."""
    try:
        from ._commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"The command line needs {error.name}: pip install 'cafexai[cli]'.")
    try:
        app()
    except (ValueError, OSError, NotImplementedError, ModuleNotFoundError, ArithmeticError) as error:
        sys.exit(f"cafexai: {error}")


if __name__ == "__main__":
    main()
