"""Hold two files of scores against each other."""

from __future__ import annotations

from math import inf

import torch
from dtypes import label
from entries import TENSORS, summary
from torch import Tensor

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6}  # of the largest number of a tensor
ROUNDED = ("completeness_error", "output_error")  # what rounding leaves, by itself


def compare_files(one_path, two_path, most, rounding=False):
    """Print what differs between two files; whether all numbers are equal, or differ by rounding alone."""
    one, two = (torch.load(path) for path in (one_path, two_path))
    both = [name for name in one if name in two]
    numbers = [name for name in both if isinstance(one[name], Tensor) or isinstance(two[name], Tensor)]
    different = {name: apart(one[name], two[name]) for name in numbers if not equal(one[name], two[name])}
    if rounding:
        allowed = {name: inf if name.endswith(ROUNDED) else ROUNDING.get(one[name].dtype, 0) for name in different}
        different = {name: far for name, far in different.items() if far > allowed[name]}
    texts = [name for name in both if isinstance(one[name], str) and isinstance(two[name], str) and one[name] != two[name]]
    missing = {path: [name for name in a if name not in b] for path, a, b in ((two_path, one, two), (one_path, two, one))}
    print(f"{one_path}: {summary(one)}\n{two_path}: {summary(two)}")
    print(f"names in both: {len(both)}; numbers: {len(numbers)}, equal: {len(numbers) - len(different)}")
    listed("fields with different numbers", by_field(different), len(different))
    lines = [f"{name}: {distance:.3g}{described(one[name], two[name])}" for name, distance in different.items()]
    listed("different numbers, by their largest difference in parts of the largest number", lines, most)
    for path, names in missing.items():
        listed(f"missing in {path}", names, most)
    listed("different texts", [f"{name}:\n    {one[name]}\n    {two[name]}" for name in texts], most)
    return not different and not any(missing_number(name, one, two) for names in missing.values() for name in names)


def equal(one, two):
    """The same dtype, shape and numbers, bit for bit but for the kind of NaN and the sign of zero."""
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or one.dtype != two.dtype or one.shape != two.shape:
        return False
    return torch.equal(one, two) or bool(((one == two) | (one.isnan() & two.isnan())).all())


def apart(one, two):
    """The largest difference of two tensors, in parts of their largest number; infinite if they cannot be compared."""
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or one.shape != two.shape or not one.numel():
        return float("inf")
    size = torch.maximum(one.double().abs(), two.double().abs()).max()
    largest = float((one.double() - two.double()).abs().max() / size)
    return largest if largest == largest else float("inf")


def described(one, two):
    """What kind of entries these are, where that differs."""
    kinds = [f"{label(v.dtype)} {tuple(v.shape)}" if isinstance(v, Tensor) else "text" for v in (one, two)]
    return "" if kinds[0] == kinds[1] else f" ({kinds[0]} and {kinds[1]})"


def by_field(different):
    """One line for each field of explanations: how many tensors differ, and how far at most."""
    found = {}
    for name, distance in different.items():
        field = next((part for part in name.split("/")[1:] if part in TENSORS), "other results")
        found.setdefault(field, []).append(distance)
    return [f"{field}: {len(distances)}, at most by {max(distances):.3g}" for field, distances in found.items()]


def listed(title, lines, most):
    """Print a heading with a count, and the first lines below it."""
    print(f"{title}: {len(lines)}")
    for line in lines[:most]:
        print(f"  {line}")
    if len(lines) > most:
        print(f"  ... and {len(lines) - most} more")


def missing_number(name, one, two):
    """Whether the entry that one side lacks is a number or an error in the place of numbers."""
    value = one[name] if name in one else two[name]
    return isinstance(value, Tensor) or name.endswith("/error")
