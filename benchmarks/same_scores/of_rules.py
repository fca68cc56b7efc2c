"""Every sample call of the table of rules, as a model of its own."""

from __future__ import annotations

import zlib
from collections import Counter
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from dtypes import DTYPES, label
from explaining import BIASES, NETTINGS, explain
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from cases import CASES, K, S

NAMESPACES = {
    "torch": torch,
    "Tensor": torch.Tensor,
    "functional": F,
    "_nn": torch._C._nn,
    "special": torch.special,
    "linalg": torch.linalg,
}
OPERATORS = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv"}  # where Python's name differs
OUTPUTS = 3  # mixtures of the elements of an operation's result that are explained


def runs():
    """(name, computation) of every sample call in every dtype."""
    for name, case, function in instances():
        for dtype in DTYPES:
            yield from of_call(f"{name}/{label(dtype)}", case, function, dtype)


def of_call(head, case, function, dtype):
    """One sample call with all settings, and by rows if it can be read so."""
    leaves, structure, inputs, random = drawn(case, dtype)
    run = partial(explain, rule_model(case, function, leaves, structure, dtype), inputs, target="all")
    yield f"{head}/random/several c", partial(run, random, several=[0.0, 1.0])
    starts = {"zero": None, "random": random}
    for start, netting, biases in product(starts, NETTINGS, BIASES):
        yield f"{head}/{start}/{netting}/{biases}", partial(run, starts[start], netting=netting, biases=biases)
    model = rows_model(function, leaves, structure, dtype)
    rows, baselines = (tuple(x[0] for x in given) for given in (inputs, random))
    if by_rows(model, rows):
        for netting in NETTINGS:
            yield f"{head}/rows/{netting}", partial(explain, model, rows, baselines, target=1, netting=netting)


def instances():
    """(name, case, function) of every sample call; cases of one name are numbered."""
    seen = Counter()
    for case in CASES:
        for place, function in functions_named(case.name).items():
            if fits(case, function):
                yield f"{case.name} {seen[case.name]} {place}", case, function
        seen[case.name] += 1


def functions_named(name):
    """Label -> function for everything in torch with this name, its operators and what writes in place."""
    if name.startswith("aten."):
        return {name: getattr(torch.ops.aten, name.removeprefix("aten."))}
    if name.startswith("torch.Tensor."):
        return {name: getattr(torch.Tensor, name.removeprefix("torch.Tensor."))}
    operator, found = OPERATORS.get(name, name), {}
    for spelling in (name, f"__{operator}__", f"__r{operator}__", f"{name}_", f"__i{operator}__"):
        for place in ("Tensor",) if spelling.startswith("__") else NAMESPACES:
            member = getattr(NAMESPACES[place], spelling, None)
            if type(member).__name__ in ("getset_descriptor", "property"):
                member = member.__get__
            if callable(member) and member not in found.values():
                found[f"{place}.{spelling}"] = member
    return found


def fits(case, function):
    """Whether a case is about a function; conditions may know nothing of functions that have no rule."""
    try:
        return case.where(function)
    except Exception:
        return False


def drawn(case, dtype):
    """The arguments of a sample call in a flat list with their structure, and inputs and baselines for the scored ones."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr((case.name, case.twin)).encode()))
    leaves, structure = tree_flatten((case.args, case.kwargs))
    inputs, baselines = [], []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, S):
            start = between(leaf, generator)
            up, down = (fractions(leaf.shape, generator) * leaf.scores for _ in range(2))
            inputs.append((start + up - down)[None].to(dtype))
            baselines.append(start[None].to(dtype))
            leaves[place] = S
        elif isinstance(leaf, K):
            leaves[place] = between(leaf, generator).to(dtype)
        elif isinstance(leaf, Tensor) and leaf.is_floating_point():
            leaves[place] = leaf.to(dtype)
    return leaves, structure, tuple(inputs), tuple(baselines)


def fractions(shape, generator):
    """Random numbers from 0 to 1."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def between(spec, generator):
    """Random numbers within the bounds of an argument."""
    return fractions(spec.shape, generator) * (spec.high - spec.low) + spec.low


def rule_model(case, function, leaves, structure, dtype):
    """A model of one row whose outputs mix the elements of an operation's result."""

    def model(*inputs):
        line = numbers_in(called(function, leaves, structure, [x[0].clone() for x in inputs]), dtype)
        out = (line @ mixture(len(line), dtype))[None]
        return out + inputs[0].flatten(1).sum(1, keepdim=True) if case.twin in ("constant", "shaped") else out

    return model


def rows_model(function, leaves, structure, dtype):
    """The same for an operation that treats the first dimension as rows."""

    def model(*inputs):
        line = called(function, leaves, structure, [x.clone() for x in inputs]).flatten(1)
        return line @ mixture(line.shape[1], dtype)

    return model


def by_rows(model, inputs):
    """Whether a model takes the first dimension of its inputs as rows, of which there are several."""
    rows = {len(x) for x in inputs if x.ndim > 1}
    try:
        return len(rows) == 1 and max(rows) > 1 and model(*inputs).shape == (*rows, OUTPUTS)
    except Exception:
        return False


def called(function, leaves, structure, values):
    """The result of an operation with these values in the places of the scored arguments."""
    queue = iter(values)
    args, kwargs = tree_unflatten([next(queue) if leaf is S else leaf for leaf in leaves], structure)
    result = function(*args, **kwargs)
    return args[0] if result is None else result


def numbers_in(result, dtype):
    """All floating point numbers of a result in one line, or those of constants."""
    if not isinstance(result, (Tensor, tuple, list)):
        result = torch.tensor(result)
    parts = [result] if isinstance(result, Tensor) else [part for part in result if isinstance(part, Tensor)]
    parts = [part for part in parts if part.is_floating_point()] or parts[:1] or [torch.tensor(result)]
    lines = [part.reshape(-1) if part.dtype == dtype else part.reshape(-1).to(dtype) for part in parts]
    return lines[0] if len(lines) == 1 else torch.cat(lines)


def mixture(count, dtype):
    """Weights of either sign for some numbers."""
    return (fractions((count, OUTPUTS), torch.Generator().manual_seed(1)) * 2 - 1).to(dtype)
