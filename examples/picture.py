"""Draw the explanation that the demo prints: python examples/picture.py OUT.png"""

from __future__ import annotations

import sys

from demo import explain_test_set, most_conflicted


def main() -> None:
    """Write the picture to the path given as the only argument."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/picture.py OUT.png")
    explanation, correct = explain_test_set()
    explanation.plot(most_conflicted(explanation, correct), most=10).savefig(sys.argv[1], dpi=130)


if __name__ == "__main__":
    main()
