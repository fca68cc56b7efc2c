"""Scores of hundreds of models, to hold two trees of the package against each other bit for bit.

Usage, for the tree that PYTHONPATH names:

    PYTHONPATH=<tree>/src:<tree>/tests python benchmarks/same_scores dump A.pt
    python benchmarks/same_scores compare A.pt B.pt

``dump`` writes a dictionary: name -> tensor, or text for what was raised, warned of, frozen or noted. Everything is computed
without compiled kernels and oneDNN, with one thread and from fixed seeds, in float32 and float64, through public names only.
Every option of CAFE is named, so that the defaults of a tree do not matter; ``--base unit`` names those of the default variant
of 0.2, with frozen attention. ``--part`` computes one part and may be repeated: rules, architectures, methods, models, theory,
random. ``--every 7`` computes every seventh run of a part. ``compare`` ends with 1 if a number differs or is missing on one
side; texts that differ are listed by themselves. With ``--rounding``, numbers may differ by 1e-12 (float64) or 1e-6 (float32)
of the largest of their tensor.
"""

from __future__ import annotations

import argparse
import os
import sys

PARTS = (
    "rules",
    "architectures",
    "methods",
    "models",
    "theory",
    "random",
)  # each in a file of_<part>.py: tests have names like these


def options_given():
    """What the command line says."""
    description = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python benchmarks/same_scores", **description)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("dump", help="compute scores with the tree that PYTHONPATH names")
    writing.add_argument("path")
    writing.add_argument("--part", action="append", choices=PARTS, help="this part only; may be repeated")
    writing.add_argument("--base", choices=("published", "unit"), default="published", help="the options that runs start from")
    writing.add_argument("--every", type=int, default=1, metavar="N", help="every Nth run of each part (default: all)")
    holding = commands.add_parser("compare", help="hold two files against each other")
    holding.add_argument("paths", nargs=2)
    holding.add_argument("--rounding", action="store_true", help="numbers may differ by rounding")
    holding.add_argument("--most", type=int, default=20, help="lines of each list (default: %(default)s)")
    return parser.parse_args()


def main():
    """Dump or compare; only the first needs the package and its tests."""
    options = options_given()
    if options.command == "dump":
        os.environ["CAFEXAI_COMPILE"] = "never"
        import explaining
        from recording import dump

        explaining.base = options.base
        dump(options.path, options.part or PARTS, options.every)
    else:
        from comparing import compare_files

        if not compare_files(*options.paths, options.most, options.rounding):
            sys.exit(1)


if __name__ == "__main__":
    main()
