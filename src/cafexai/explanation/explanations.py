"""Several explanations of the same rows: one per class, one per value of c, or one per pair of these."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._extras import needs
from .._files import read_file, write_file
from .explanation import Explanation
from .files import pack, unpack
from .parts import Tensors

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from typing_extensions import Unpack

    from ..plotting.picture import Picture
    from ..reporting import ReportOptions

FORMAT, UNCHECKED = "several 2", "several 1"  # of files; those of version 0.1 have no checksum


class Explanations(Mapping[Any, Explanation]):
    """Several explanations of the same rows: key -> Explanation.

    Args:
        by: What the keys are: ("target",), ("c",), or ("c", "target") for pairs. A c that is a dictionary has its position
            as its key.
        entries: The explanations.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
        >>> list(several)
        [0, 1, 2]
    """

    def __init__(self, by: tuple[str, ...], entries: Mapping[Any, Explanation]) -> None:
        self.by = by
        self._entries = dict(entries)

    def __getitem__(self, key: Any) -> Explanation:
        """By the keys as they are; a class also by its name."""
        if isinstance(key, str) and self.by == ("target",):
            names = next(iter(self._entries.values())).class_names or ()
            key = names.index(key) if key in names else key
        if isinstance(key, bool) or key not in self._entries:
            known = ", ".join(map(str, self._entries))
            raise KeyError(f"explanations[{key!r}]: there is one for each {' and '.join(self.by)} of {known}.")
        return self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Explanations(by={', '.join(self.by)}; {list(self._entries)}; each {next(iter(self._entries.values()))})"

    def stack(self, name: str) -> Tensors:
        """A field of all explanations as one tensor.

        Args:
            name: The name of the field, such as "combined".

        Returns:
            (keys, rows, ...); a tuple for several inputs.

        Raises:
            ValueError: The field is not a tensor.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.stack("positive").shape
            torch.Size([3, 4, 2])
        """
        values = [getattr(explanation, name) for explanation in self._entries.values()]
        if isinstance(values[0], Tensor):
            return torch.stack(values)
        if isinstance(values[0], tuple) and values[0] and isinstance(values[0][0], Tensor):
            return tuple(torch.stack(parts) for parts in zip(*values, strict=True))
        raise ValueError(f"stack({name!r}): not a tensor. Stack positive, negative, combined, bias, conflict, output ...")

    def replace(self, **changes: Any) -> Explanations:
        """Change some values of each explanation.

        Args:
            **changes: New values, by their flat names.

        Returns:
            The changed explanations.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.replace(row_names=("a", "b", "c", "d"))[0].row_names
            ('a', 'b', 'c', 'd')
        """
        return Explanations(self.by, {key: explanation.replace(**changes) for key, explanation in self._entries.items()})

    def rows(self, rows: int | str | slice | Tensor | np.ndarray | list[int] | list[bool]) -> Explanations:
        """Some rows of each explanation.

        Args:
            rows: As in ``explanation[rows]``.

        Returns:
            The explanations of these rows.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> len(several.rows(slice(0, 2))[0])
            2
        """
        return Explanations(self.by, {key: explanation[rows] for key, explanation in self._entries.items()})

    def to_frame(self) -> pandas.DataFrame:
        """The long tables one below the other, with the keys as first columns; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> sorted(set(several.to_frame()["target"]))
            [0, 1, 2]
        """
        pandas = needs("pandas", "tabular")
        frames = []
        for key, explanation in self._entries.items():
            frame = explanation.to_frame()
            for place, (name, value) in enumerate(zip(self.by, key if len(self.by) > 1 else (key,), strict=True)):
                if name == "target":  # the class by its name, as in the table of one explanation
                    frame.insert(place, name, frame.pop(name))
                else:
                    frame.insert(place, name, value)
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True)

    def report(self, path: str | os.PathLike[str], **options: Unpack[ReportOptions]) -> Path:
        """Write one report about all explanations.

        Args:
            path: The file; its name ends in .html.
            **options: See ``cafexai.reporting.write_report``.

        Returns:
            The path.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.report("report.html").name
            'report.html'
        """
        from ..reporting import write_report

        return write_report(self, path, **options)

    def plot(self, row: int | str = 0, most: int = 8, order: str = "net") -> Picture:
        """One row of all explanations: the effect of c, or the net scores (maps of images) side by side; needs matplotlib.

        Args:
            row: Which row.
            most: How many features are shown.
            order: Features by the size of their net score, "net", or by positive + negative, "influence".

        Returns:
            The picture.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.plot(0).savefig("classes.png")
        """
        from ..plotting.comparison_plots import several

        return several(self.by, self.rows(row), most, order)

    def _repr_html_(self) -> str:
        from ..reporting.notebook import explanations_page

        return explanations_page(self.by, self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, as ``Explanation.save`` does; tensors that all share, as the inputs, are written once.

        Args:
            path: The file; its name ends in .safetensors.

        Raises:
            ValueError: The file cannot be written there.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.save("classes.safetensors")
        """
        tensors: dict[str, Tensor] = {}
        names: dict[int, str] = {}  # id of a tensor -> where it was written first
        entries = []
        for place, (key, explanation) in enumerate(self._entries.items()):
            own, described = pack(explanation)
            shared = {}
            for name, tensor in own.items():
                full = names.setdefault(id(tensor), f"{place}/{name}")
                tensors[full] = tensor
                shared[name] = full
            entries.append({"key": key, "tensors": shared, "described": described})
        write_file(path, "Explanations", tensors, {"format": FORMAT, "by": self.by, "entries": entries})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanations:
        """Read what ``save`` wrote.

        Args:
            path: The file.

        Returns:
            The explanations.

        Raises:
            ValueError: The file was changed, or does not hold explanations.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> several = CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(4, 2))
            >>> several.save("classes.safetensors")
            >>> list(type(several).load("classes.safetensors"))
            [0, 1, 2]
        """
        call = f"Explanations.load({os.fspath(path)!r})"
        tensors, described = read_file(path, "Explanations", FORMAT, UNCHECKED)
        found = {}
        try:
            for entry in described["entries"]:
                key = tuple(entry["key"]) if isinstance(entry["key"], list) else entry["key"]
                own = {name: tensors[full] for name, full in entry["tensors"].items()}
                found[key] = unpack(Explanation, own, entry["described"], f"{call}, {' and '.join(described['by'])} {key}")
            return cls(tuple(described["by"]), found)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{call}: what the file holds are no explanations ({error!r}).") from error
