"""How many faults the tests find: single changes of the source, made by Cosmic Ray, each held against the tests of its file.

    python tests/mutants.py --each 8 --seed 0 [FILE ...]

A mutant is killed if a test fails or takes far too long, and else survives. They are drawn at random, ``--each`` from every
file, since all of them take days; the same seed draws the same ones. The tree itself is left alone: a copy is changed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent
CONFLICTS = "conflicts/test_conflicts.py conflicts/test_audit.py"
TESTS = {  # the tests of each file, as pytest takes them
    "_core/activation.py": (
        "explain/test_worked_examples.py core/test_properties.py engine/test_sequential.py core/test_kernels.py"
    ),
    "_core/backward.py": "explain/test_worked_examples.py core/test_properties.py engine/test_errors.py rules/test_codes.py",
    "_carriers/feature.py": "carriers/test_feature.py",
    "_core/math_functions.py": "explain/test_worked_examples.py rules/test_rules.py",
    "_core/mean_flows.py": "carriers/test_unit.py",
    "_carriers/unit_activation.py": "carriers/test_unit.py engine/test_sequential.py",
    "_carriers/paired.py": "carriers/test_paired.py",
    "_carriers/path.py": "explain/test_worked_examples.py core/test_lazy.py core/test_properties.py rules/test_rules.py",
    "_core/input_origin.py": "engine/test_frozen.py",
    "_carriers/signed.py": "methods/test_methods.py",
    "_core/steps.py": (
        "explain/test_worked_examples.py engine/test_sequential.py engine/test_pitfalls.py "
        "explain/test_several.py methods/test_methods.py"
    ),
    "_core/completeness.py": "core/test_completeness.py engine/test_errors.py",
    "_carriers/unit.py": "carriers/test_unit.py",
    "conflicts/audit.py": "conflicts/test_audit.py",
    "conflicts/definitions.py": CONFLICTS,
    "conflicts/find_units.py": "conflicts/test_audit.py",
    "conflicts/maps.py": CONFLICTS,
    "conflicts/minimal.py": CONFLICTS,
    "conflicts/prevalence.py": "conflicts/test_audit.py",
    "conflicts/tuning.py": "conflicts/test_audit.py",
    "conflicts/closed_form.py": CONFLICTS,
    "metrics/infidelity.py": "metrics/test_metrics.py",
    "metrics/outputs.py": "metrics/test_metrics.py",
    "metrics/perturbations.py": "metrics/test_metrics.py",
    "metrics/simple.py": "metrics/test_metrics.py",
    "metrics/registry.py": "metrics/test_metrics.py comparison/test_compare.py",
    "metrics/unit_infidelity.py": "metrics/test_metrics.py",
    "reporting/text_ledger.py": "plotting/test_presentation.py",
}


BROKEN = ("_BitAnd", "_BitOr", "_BitXor", "_LShift", "_RShift")  # put in the place of + or *, any test sees them


class Unannotated(ast.NodeTransformer):
    """Leaves out annotations: they are not evaluated, so that a change of one is none."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def meaning(source):
    """What is left of a source without its annotations; None if it is no Python."""
    try:
        return ast.dump(Unannotated().visit(ast.parse(source)))
    except SyntaxError:
        return None


def mutants(source):
    """All that can be made of a file, in a fixed order, by the operator and its place among those that it can change."""
    tree = get_ast(source)
    for name in sorted(operator_names()):
        if not name.endswith(BROKEN) and not get_operator(name).arguments():
            operator = get_operator(name)()
            count = sum(len(list(operator.mutation_positions(node))) for node in ast_nodes(tree))
            yield from ((operator, place) for place in range(count))


def drawn(source, count, seed):
    """So many changed sources, no two of which mean the same."""
    known, found = {None, meaning(source)}, []
    everything = list(mutants(source))
    random.Random(seed).shuffle(everything)
    for operator, place in everything:
        if len(found) == count:
            break
        mutant = mutate_code(source, operator, place)
        if mutant is not None and meaning(mutant) not in known:
            known.add(meaning(mutant))
            found.append(mutant)
    return found


def passes(tree, tests, seconds=None):
    """Whether these tests pass in this tree; False also if they take longer."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests.split())]
    try:
        ended = subprocess.run(line, cwd=tree, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def change(source, mutant):
    """The changed lines."""
    lines = difflib.unified_diff(source.splitlines(), mutant.splitlines(), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in list(lines)[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(TESTS), metavar="FILE", help="such as _carriers/path.py")
    parser.add_argument("--each", type=int, default=8, help="mutants of every file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    killed = survived = 0
    usual: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("src", "tests", "docs", "examples", "README.md", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, tree / part)
        for cache in tree.rglob("__pycache__"):
            shutil.rmtree(cache)
        for file in given.files:
            tests, path = TESTS[file], tree / "src" / "cafexai" / file
            source = path.read_text()
            if tests not in usual:
                start = time.monotonic()
                if not passes(tree, tests):
                    sys.exit(f"{tests}: fails without any change.")
                usual[tests] = time.monotonic() - start
            alive = []
            chosen = drawn(source, given.each, given.seed)
            for mutant in chosen:
                path.write_text(mutant)
                if passes(tree, tests, 3 * usual[tests] + 30):
                    alive.append(mutant)
            path.write_text(source)
            print(f"{file}: {len(chosen) - len(alive)} of {len(chosen)} killed", flush=True)
            for mutant in alive:
                print(change(source, mutant), flush=True)
            killed, survived = killed + len(chosen) - len(alive), survived + len(alive)
    print(f"{killed} killed, {survived} survived: {killed / max(1, killed + survived):.0%}")


if __name__ == "__main__":
    main()
