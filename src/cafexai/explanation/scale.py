"""How much conflict is usual: the shares of conflict of background rows."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._files import replace_file

if TYPE_CHECKING:
    from .explanation import Explanation


@dataclass(frozen=True)
class ConflictScale:
    """The shares of conflict of background rows, which ranks those of other rows. ``CAFE.conflict_scale`` makes it.

    Args:
        shares: ``conflict_share`` of every background row.
        kind: How conflict was computed there: "measured" or "net".
        about: What was explained, in words.

    Example:
        >>> ConflictScale((0.1, 0.2, 0.6), "measured", "output 0").rank_shares(torch.tensor([0.5]))
        tensor([0.6667])
    """

    shares: tuple[float, ...]
    kind: str
    about: str

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
            ValueError: The conflict of the explanation was computed in another way.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> scale.rank(cafe.explain(torch.ones(3, 2), baselines="background")).shape
            torch.Size([3])
        """
        if explanation.conflict_kind != self.kind:
            raise ValueError(
                f"scale.rank(explanation): its conflict is {explanation.conflict_kind!r}, that of the scale {self.kind!r}. "
                "Explain both with the same conflict=."
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
            return cls(tuple(map(float, found["shares"])), str(found["kind"]), str(found["about"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"ConflictScale.load({os.fspath(path)!r}): the file is no scale ({error!r}).") from error
