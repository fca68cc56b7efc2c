"""The explanation of a generated text: for each of its tokens the scores of all tokens before it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from .conflict import from_nets
from .explanation import Explanation

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from ..plotting.picture import Picture
    from ..reporting import ReportOptions

PROMPT, GENERATED = "prompt", "generated"  # where a token comes from


class Level(NamedTuple):
    """A way to sum tokens: the group of each, and the names of the groups."""

    groups: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class Generation:
    """Scores of the prompt and of earlier generated tokens for each generated token. ``CAFE.generation`` makes it.

    Args:
        explanation: One row per generated token, one feature per source: a token, a word, or a group of these. Tokens that
            come later have no name and the score 0.
        prompt: The prompt as text.
        generated: The generated tokens as text.
        sources: The sources as text.
        origins: "prompt" or "generated", for each source.
        seen: (generated, sources): the source comes before the generated token.
        explained: What is explained of each token, in words.
        level: What a source is: "token", "word", "message" or "segment".
        levels: How tokens are summed at the other levels.
        tokens: The same by tokens, if this is a sum.

    Example:
        >>> import torch, cafexai
        >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))
        >>> g = cafexai.CAFE(model).generation([1, 2, 3], continuation=[4, 5])
        >>> g.explanation.combined.shape
        torch.Size([2, 4])
    """

    explanation: Explanation
    prompt: str
    generated: tuple[str, ...]
    sources: tuple[str, ...]
    origins: tuple[str, ...]
    seen: Tensor
    explained: str
    level: str = "token"
    levels: Mapping[str, Level] = field(default_factory=dict)
    tokens: Generation | None = None

    def __len__(self) -> int:
        return len(self.generated)

    def __repr__(self) -> str:
        return f"Generation({self.text!r}, {len(self)} generated tokens, {len(self.sources)} sources ({self.level}))"

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(self.generated)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how the explanation was made."""
        return self.explanation.notes

    @property
    def scores(self) -> Tensor:
        """Net scores, (sources, generated tokens)."""
        return self.explanation.flat(self.explanation.combined).mT

    def by(self, level: str) -> Generation:
        """The same with the scores of tokens summed.

        Args:
            level: "token", "word", "message" (of a chat) or "segment" (with ``segments=``).

        Returns:
            The sums; positive and negative scores separately.

        Raises:
            ValueError: The text has no such level.

        Example:
            >>> import torch, cafexai
            >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))
            >>> cafexai.CAFE(model).generation([1, 2, 3], continuation=[4, 5]).by("token").level
            'token'
        """
        whole = self.tokens or self
        if level == whole.level:
            return whole
        if level not in whole.levels:
            known = ", ".join(map(repr, (whole.level, *whole.levels)))
            raise ValueError(f"generation.by({level!r}): there is no such level. Allowed values: {known}.")
        index, names = whole.levels[level]
        e = whole.explanation
        index = index.to(e.output.device)

        def summed(scores: Tensor) -> Tensor:
            return scores.new_zeros(len(scores), len(names)).index_add_(1, index, scores)

        scores = {name: summed(getattr(e, name)) for name in ("positive", "negative", "combined")}
        seen = summed(whole.seen.to(e.output)).cpu() > 0
        origins = dict(zip(index.tolist(), whole.origins, strict=True))
        tokens = tuple(tuple(n if s else "" for n, s in zip(names, row, strict=True)) for row in seen.tolist())
        made = e.replace(
            **scores,
            tokens=tokens,
            at_baseline=None,
            conflict_info=from_nets(scores["combined"]),
            settings={**e.meta.settings, "grouped": True},
        )
        return dataclasses.replace(
            whole,
            explanation=made,
            sources=names,
            origins=tuple(origins.get(place, PROMPT) for place in range(len(names))),
            seen=seen,
            level=level,
            tokens=whole,
        )

    def span(self, start: int, stop: int) -> Generation:
        """The sum over several generated tokens: one explanation of a whole part of the text.

        Args:
            start: The first token, from 0 on.
            stop: Behind the last one.

        Returns:
            A generation with one column, whose scores sum to the sum of the explained numbers.

        Raises:
            ValueError: There are no such tokens.

        Example:
            >>> import torch, cafexai
            >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))
            >>> len(cafexai.CAFE(model).generation([1, 2, 3], continuation=[4, 5]).span(0, 2))
            1
        """
        if not 0 <= start < stop <= len(self):
            raise ValueError(
                f"generation.span({start}, {stop}): there are {len(self)} tokens. Give 0 <= start < stop <= {len(self)}."
            )
        own = None if self.tokens is None else self.tokens.span(start, stop)
        e = self.explanation[start:stop]
        text = "".join(self.generated[start:stop])
        sums = {name: _total(getattr(e, name)) for name in ("positive", "negative", "combined", "output", "baseline_output")}
        seen = self.seen[start:stop].any(0, keepdim=True)
        called = f"the sum over the tokens of {text!r}"
        made = e[:1].replace(
            **sums,
            bias_by_layer={layer: _total(scores) for layer, scores in e.bias_by_layer.items()},
            completeness_error=_total(e.completeness_error),
            model_at_baseline=None,
            probability=None if e.probability is None else e.probability.prod(0, keepdim=True),
            conflict_info=from_nets(sums["combined"]),
            tokens=tuple(tuple(n if s else "" for n, s in zip(self.sources, row, strict=True)) for row in seen.tolist()),
            target_names=(called,),
            row_names=(text.strip() or repr(text),),
        )
        return dataclasses.replace(self, explanation=made, generated=(text,), seen=seen, tokens=own)

    def to_frame(self) -> pandas.DataFrame:
        """A long table, one line per generated token and source before it; needs pandas.

        Returns:
            The columns step, generated, probability, place, source, origin, positive, negative, combined.
        """
        from ..adapters.generation_table import generation_table

        return generation_table(self)

    def plot(
        self,
        scores: str = "combined",
        most: int = 60,
        *,
        ax: Axes | None = None,
        figsize: tuple[float, float] | None = None,
        style: str | None = None,
    ) -> Picture:
        """A heat map: a row for each source, a column for each generated token; needs matplotlib.

        Args:
            scores: "combined", "positive" or "negative".
            most: How many sources are shown; those with the smallest scores are summed in one row.
            ax: Axes of matplotlib to draw on.
            figsize: Width and height in inches.
            style: "paper": as wide as a column or a page, letters of 7 points, no text below.

        Returns:
            The picture, which notebooks show and ``.savefig`` writes; with ``ax``, its figure.

        Raises:
            ValueError: There are no such scores, or an option is unknown.
        """
        from ..plotting.generation_plot import heat_map
        from ..plotting.looks import look

        with look(figsize, style, ax):
            return heat_map(self, scores, most)

    def html(self) -> str:
        """The text as a page in one file: choose a generated token to see what it comes from.

        Returns:
            HTML without references to other files.
        """
        from ..reporting.generation_page import generation_page

        return generation_page(self)

    def _repr_html_(self) -> str:
        from ..reporting.generation_page import generation_table

        return generation_table(self)

    def report(self, path: str | os.PathLike[str], **options: Unpack[ReportOptions]) -> Path:
        """Write a report with one row per generated token.

        Args:
            path: The file; its name ends in .html.
            **options: See ``cafexai.reporting.write_report``.

        Returns:
            The path.
        """
        return self.explanation.report(path, **options)


def _total(values: Any) -> Any:
    return values.sum(0, keepdim=True)
