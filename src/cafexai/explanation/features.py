"""What the features of a row are called, what they are, and what they are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._inputs.groups import default_names
from .._inputs.shown_baselines import UNKNOWN
from .._inputs.target import split_index
from .parts import name_output

if TYPE_CHECKING:
    from .explanation import Explanation
    from .parts import FeatureInfo, Tensors


class FeatureFields:
    """Names, values and baselines of the features of an explanation, and the names of its rows."""

    if TYPE_CHECKING:
        positive: Tensors
        inputs: Tensors
        baselines: Tensors
        target: Tensor
        against: Tensor | None
        conflict_pairs: Tensor | None
        features: FeatureInfo
        row_names: tuple[str, ...] | None
        target_names: tuple[str, ...] | None
        meta: Any

        @property
        def class_names(self) -> tuple[str, ...] | None: ...
        @staticmethod
        def parts(tensors: Tensors) -> tuple[Tensor, ...]: ...
        def flat(self, tensors: Tensors) -> Tensor: ...
        def __len__(self) -> int: ...
        def __getitem__(self, rows: Any) -> Explanation: ...

    def by_output(self) -> dict[str, Explanation]:
        """The rows of each explained output: scores of different outputs are never put together.

        Returns:
            Name of the output, as ``target_name`` has it -> the explanation of its rows; the most frequent output first.

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 3)).explain(torch.randn(5, 2), target=1)
            >>> list(e.by_output())
            ['output 1']
        """
        whole = self.target if self.against is None else torch.cat([self.target, self.against], 1)
        if not len(self) or bool((whole == whole[:1]).all()):
            return {self.target_name() if len(self) else "": self[:]}
        _, place, counts = whole.unique(dim=0, return_inverse=True, return_counts=True)
        found: dict[str, Explanation] = {}
        for kind in counts.argsort(descending=True, stable=True).tolist():
            rows = self[place == kind]
            found[rows.target_name()] = rows
        return found

    def for_output(self, target: Any = None, call: str = "for_output") -> Explanation:
        """The rows that are explained for one output.

        Args:
            target: The output, by class name or position. None: the only one.
            call: What is named in errors.

        Returns:
            The explanation of these rows.

        Raises:
            ValueError: The rows are explained for several outputs and none is given, or no row is explained for it.

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 3)).explain(torch.randn(5, 2), target=1)
            >>> len(e.for_output(1))
            5
        """
        groups = self.by_output()
        told = ", ".join(f"{name} ({len(rows)} row{'s' * (len(rows) != 1)})" for name, rows in list(groups.items())[:8])
        if target is None:
            if len(groups) > 1:
                raise ValueError(
                    f"{call}(...): the rows are explained for {len(groups)} outputs, which are never mixed: {told}. Give "
                    "target=..., or explain(x, target=...) one output of all rows."
                )
            return next(iter(groups.values()))
        place = target
        if isinstance(target, str) and self.class_names is not None and target in self.class_names:
            place = self.class_names.index(target)
        wanted = torch.tensor([-1] if isinstance(place, str) else [place] if isinstance(place, int) else list(place))
        if wanted.shape == self.target.shape[1:]:
            same = (self.target == wanted.to(self.target)).all(1)
            if bool(same.any()):
                return self[same]
        raise ValueError(f"{call}(..., target={target!r}): no row is explained for this output. There are: {told}.")

    def position(self, row: int | str) -> int:
        """The position of a row that is given by its name, or by its position.

        Args:
            row: A name of ``e.row_names``, or a position, from the end if negative.

        Returns:
            The position, from 0 on.

        Raises:
            KeyError: No row has this name, or several rows have it.
            IndexError: There is no such position.

        Example:
            >>> import pandas, torch, cafexai
            >>> frame = pandas.DataFrame({"a": [1.0, 2.0]}, index=["first", "second"])
            >>> cafexai.CAFE(torch.nn.Linear(1, 1)).explain(frame).position("second")
            1
        """
        return find_row(row, len(self), self.row_names)

    def pairs(self, row: int | str = 0, most: int = 10) -> list[tuple[str, str, float]]:
        """The strongest conflicts between two features, or a feature and the biases.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            (pushed up, pushed down, amount): what they cancelled of each other over all units, in units of the output
            (docs/netting.md).

        Raises:
            ValueError: Pairs were not computed.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.ReLU())
            >>> net[0].weight.data = torch.tensor([[0.9, -1.0]])
            >>> e = CAFE(net, variant="feature", c=1).explain(torch.ones(1, 2), pairs=True)
            >>> [(up, down, round(amount, 2)) for up, down, amount in e.pairs(0)]
            [('x0', 'x1', 0.45)]
        """
        if self.conflict_pairs is None:
            raise ValueError('pairs(): not computed. Call CAFE(model, variant="feature").explain(x, pairs=True).')
        names, amounts = (*self[row].names(), "(bias)"), self[row].conflict_pairs
        assert amounts is not None
        values, order = amounts[0].flatten().sort(descending=True, stable=True)
        found = zip(values[:most].tolist(), order[:most].tolist(), strict=True)
        return [(names[place // len(names)], names[place % len(names)], value) for value, place in found if value > 0]

    @property
    def grouped(self) -> bool:
        """Scores are those of groups of features, which have no single value."""
        return bool(self.meta.settings.get("grouped"))

    @property
    def shown(self) -> Tensors:
        """The values of the features, in the units of the user."""
        return self.inputs if self.features.display is None else self.features.display

    def names(self, row: int | str = 0) -> tuple[str, ...]:
        """A name for every feature; for tokens, the words of one row.

        Args:
            row: Which row, for tokens.

        Returns:
            One name per feature.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.names()
            ('age', 'dose')
        """
        if self.features.tokens is not None:
            return self.features.tokens[self.position(row)]
        if self.features.names is not None:
            return self.features.names
        return default_names([part.shape[1:] for part in self.parts(self.positive)])

    @property
    def kind(self) -> str:
        """What a row is: "text" (words), "image" (channels, height, width), or "table"."""
        if self.features.tokens is not None:
            return "text"
        parts = self.parts(self.positive)
        return "image" if len(parts) == 1 and parts[0].ndim == 4 and min(parts[0].shape[1], parts[0].shape[3]) <= 4 else "table"

    def target_name(self, row: int | str = 0) -> str:
        """The explained number in words: "output 1", "logit of 'cat' rather than 'dog'", "unit (0, 3) of layer 'head'".

        Args:
            row: Which row.

        Returns:
            The name, such as "output 1", "logit of 'cat' rather than 'dog'", "unit (0, 3) of layer 'head'".

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.target_name()
            'output 0'
        """
        if self.target_names is not None:
            return self.target_names[self.position(row)]
        layer, seen_at = self.meta.settings.get("target_layer"), self.meta.settings.get("layer")
        names = self.class_names if layer is None else None
        place = self.position(row)
        called = [name_output(self.target[place].tolist(), names)]
        if self.against is not None:
            several = split_index(self.against[place][None], self.target.shape[1])
            called.append(" or ".join(name_output(index[0].tolist(), names) for index in several))
        named = self.meta.settings.get("output_kind", "logit")  # of a class
        kind = "unit" if layer is not None else "output" if names is None else named
        words = [kind if names is None else f"{kind} of", " rather than ".join(called)] if called[0] else [kind]
        words += [f"of layer {layer!r}"] * (layer is not None) + [f"seen at layer {seen_at!r}"] * (seen_at is not None)
        return " ".join(words)

    def values(self, row: int | str = 0) -> list[str | float | None] | None:
        """The value of every feature as people know it: a number, a category, None if it is missing; None for groups.

        Args:
            row: Which row.

        Returns:
            One value per feature: a number, a category, None if it is missing. None for groups.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.values(0)
            [1.0, 2.0]
        """
        if self.features.tokens is not None or (self.grouped and self.features.display is None):
            return None
        found: list[str | float | None] = []
        numbers = self[row].flat(self[row].shown)[0].tolist()
        for name, number in zip(self.names(row), numbers, strict=True):
            known = self.features.categories.get(name)
            code = None if number != number else number
            found.append(known[int(number)] if known is not None and code is not None else code)
        return found

    @property
    def at_baseline(self) -> Tensor | None:
        """Which features of a row are as in every baseline, and so cannot have a score. (rows, features); None: not known."""
        if self.features.at_baseline is not None:
            return self.features.at_baseline
        if self.grouped or self.features.tokens is not None or self.meta.settings.get("baselines", 1) != 1:
            return None
        pairs = zip(self.parts(self.inputs), self.parts(self.baselines), strict=True)
        return self.flat(tuple(x == r for x, r in pairs))

    def baseline_values(self, row: int | str = 0) -> list[str | float | None] | None:
        """What every feature is compared with, as people know it, like ``values``; None if that is not known.

        Of several baselines a number is the mean, a date the median, a category or code the most frequent one. None stands for
        what is missing there, "" for a single value that is not known, "(none)" for no category.

        Args:
            row: Which row.

        Returns:
            One value per feature.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.baseline_values(0)
            [0.0, 0.0]
        """
        one = self[row]
        if self.features.tokens is not None or one.values() is None:
            return None
        numbers = one.features.baseline_display
        if numbers is None and (one.grouped or one.features.display is not None):
            return None
        found: list[str | float | None] = []
        flat = (one.flat(one.baselines) if numbers is None else numbers)[0].tolist()
        for name, number, code in zip(one.names(), flat, which_are_codes(one), strict=True):
            words = self.features.categories.get(name)
            if number == UNKNOWN and numbers is not None:
                found.append("")
            elif words is None:
                found.append("(none)" if code and number < 0 else None if number != number else number)
            elif number == -1 and numbers is not None:
                found.append(None)
            else:
                known = number == number and number == int(number) and 0 <= int(number) < len(words)
                found.append(words[int(number)] if known else "(none)")
        return found


def find_row(row: int | str, count: int, names: tuple[str, ...] | None, of: str = "explanation") -> int:
    """The position of a row that is given by its name, or by its position; ``of`` is a name for errors."""
    if not isinstance(row, str):
        if not -count <= row < count:
            raise IndexError(f"{of}[{row}]: there are {count} rows.")
        return int(row) % count
    found = [place for place, name in enumerate(names or ()) if name == row]
    if len(found) == 1:
        return found[0]
    if names is None:
        raise KeyError(f"{of}[{row!r}]: the rows have no names. Take a position, {of}[0].")
    if found:
        raise KeyError(
            f"{of}[{row!r}]: {len(found)} rows have this name, at the positions {', '.join(map(str, found[:10]))}"
            f"{' ...' * (len(found) > 10)}. Take one by its position."
        )
    raise KeyError(f"{of}[{row!r}]: no row has this name. Names: {', '.join(names[:10])} ...")


def which_are_codes(explanation: Any) -> list[bool]:
    """Which features are single codes, for embeddings: no mean can be told of them."""
    if explanation.grouped or explanation.meta.settings.get("layer") is not None:
        return [False] * len(explanation.names())
    parts = zip(explanation.parts(explanation.positive), explanation.parts(explanation.inputs), strict=True)
    return [not x.is_floating_point() for scores, x in parts for _ in range(scores[0].numel())]
