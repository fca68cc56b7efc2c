"""The entry point of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Whatever goes wrong with what the user gave ends in one message."""
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("The command line needs typer: pip install 'cafexai[cli]'.")
    try:
        app()
    except (ValueError, OSError, NotImplementedError, ModuleNotFoundError, ArithmeticError) as error:
        sys.exit(f"cafexai: {error}")


if __name__ == "__main__":
    main()
