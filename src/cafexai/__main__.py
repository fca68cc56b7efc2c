"""python -m cafexai: the command line."""

from .cli import main

main()
