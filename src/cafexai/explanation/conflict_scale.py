"""How much conflict is usual: the shares of conflict of background rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._core.variant import ALLOWED
from .._files import replace_file

if TYPE_CHECKING:
    from .explanation import Explanation


@dataclass(frozen=True)
class ConflictScale:
    """The shares of conflict of background rows, which ranks those of other rows. ``CAFE.conflict_scale`` makes it.

    Args:
        shares: ``conflict_share`` of every background row.
        kind: How conflict was computed there: "measured" or "net".
        about: The explained output, in words; "" if it is the predicted class of each row.
        settings: How the rows were explained: baseline, variant and c. A scale of an earlier version knows none of it.
        among: What the rows are, in words.

    Example:
        >>> ConflictScale((0.1, 0.2, 0.6), "measured", "output 0").rank_shares(torch.tensor([0.5]))
        tensor([0.6667])
    """

    shares: tuple[float, ...]
    kind: str
    about: str
    settings: Mapping[str, str] = field(default_factory=dict)
    among: str = "background rows"

    def __repr__(self) -> str:
        middle = f", half of them above {sorted(self.shares)[len(self.shares) // 2]:.0%}" if self.shares else ""
        return f"ConflictScale({len(self.shares)} {self.among}{middle}, kind={self.kind!r}, about={self.about!r})"

    def rank_shares(self, shares: Tensor) -> Tensor:
        """Rank shares of conflict among those of the background rows.

        Args:
            shares: Shares of conflict.

        Returns:
            The part of the background rows with a smaller share, for each.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> scale.rank_shares(torch.tensor([0.0, 1.0])).shape
            torch.Size([2])
        """
        known = torch.tensor(sorted(self.shares), dtype=torch.float64)
        return (torch.searchsorted(known, shares.double().cpu()) / max(len(known), 1)).to(shares)

    def rank(self, explanation: Explanation) -> Tensor:
        """Rank the conflict of explained rows among the background rows.

        Args:
            explanation: The explanation.

        Returns:
            The part of the background rows with a smaller share of conflict, (rows,).

        Raises:
            ValueError: The rows are explained in another way than those of the scale: kind of conflict, baseline, variant, c
                or output.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> scale.rank(cafe.explain(torch.ones(3, 2))).shape
            torch.Size([3])
        """
        if explanation.conflict_kind != self.kind:
            raise ValueError(
                f"scale.rank(explanation): its conflict is {explanation.conflict_kind!r}, that of the scale {self.kind!r}. "
                "Explain both with the same conflict=."
            )
        own = describe_settings(explanation)
        for name, word in self.settings.items():
            if own.get(name) != word:
                raise ValueError(
                    f"scale.rank(explanation): {name} {own.get(name)} in the explanation, {word} in the scale. Make the scale "
                    "with the settings of the explanation: cafe.conflict_scale(target, baselines=...)."
                )
        others = [name for name in explanation.by_output() if name != self.about] if self.about else []
        if others:
            raise ValueError(
                f"scale.rank(explanation): the explanation is of {others[0]}, the scale of {self.about}. "
                "Make the scale for the explained output: cafe.conflict_scale(target)."
            )
        return self.rank_shares(explanation.conflict_share)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file.

        Args:
            path: The file.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> scale.save("scale.json")
        """
        text = json.dumps(asdict(self))
        replace_file(
            path, f"ConflictScale.save({os.fspath(path)!r})", lambda part: Path(part).write_text(text, encoding="utf-8")
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ConflictScale:
        """Read what ``save`` wrote.

        Args:
            path: The file.

        Returns:
            The scale.

        Raises:
            ValueError: The file does not hold a scale.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> scale.save("scale.json")
            >>> type(scale).load("scale.json") == scale
            True
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            scale = cls(tuple(map(float, found["shares"])), str(found["kind"]), str(found["about"]))
            if "settings" not in found:
                return scale
            return replace(scale, settings=dict(found["settings"]), among=str(found["among"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"ConflictScale.load({os.fspath(path)!r}): the file is no scale ({error!r}).") from error


def describe_settings(explanation: Explanation) -> dict[str, str]:
    """How rows were explained, as far as shares of conflict depend on it."""
    settings = explanation.meta.settings
    variant = ", ".join(f"{name}={settings.get(name)}" for name in ALLOWED)
    return {"baseline": _describe_baseline(explanation), "variant": variant, "c": str(settings.get("c"))}


def _describe_baseline(explanation: Explanation) -> str:
    """Zero, one row (and which), one for each row, or how many."""
    many = int(explanation.meta.settings.get("baselines", 1))
    if many > 1:
        return f"{many} {'rows of the background' if explanation.meta.settings.get('typical') else 'baselines'}"
    parts = explanation.parts(explanation.baselines)
    if explanation.features.tokens is not None:
        return "tokens"
    if all(not (part if part.is_floating_point() else part + 1).any() for part in parts):
        return "zero"
    if any((part != part[:1]).any() for part in parts):
        return "one for each row"
    return f"one row ({_fingerprint([part[:1] for part in parts])})"


def _fingerprint(parts: list[Any]) -> str:
    data = b"".join(part.double().cpu().numpy().round(6).tobytes() for part in parts)
    return hashlib.sha256(data).hexdigest()[:8]
