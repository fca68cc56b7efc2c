"""Conflict between features: from four outputs of the model, or from net scores.

S+ and S- are the features whose net scores are above and below 0. With r = f(baseline), p = f(x with S- at the baseline),
q = f(x with S+ at the baseline) and y = f(x), the magnitude of Definition 4 between the two sides is max(m(p), m(q)), where
m(u) = min(|y - u|, |u - r|) if (y - u) (u - r) < 0 and 0 otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._inputs.images import cell_index

if TYPE_CHECKING:
    from .conflict_scale import ConflictScale
    from .parts import Tensors

MEASURED, NET = "measured", "net"  # kinds of conflict
START, ONLY_UP, ONLY_DOWN, TOGETHER = range(4)  # the columns of sides: r, p, q, y


@dataclass(frozen=True)
class ConflictInfo:
    """The conflict of every row, averaged over baselines if there are several.

    Args:
        conflict: What features cancelled of each other, (rows,).
        left: The size of what is left, the mean of |y - r|, (rows,).
        kind: "measured": from sides; "net": from net scores.
        sides: (rows, baselines, 4): r, p, q, y.
        rank: The part of the background rows with a smaller share of conflict, (rows,).
    """

    conflict: Tensor
    left: Tensor
    kind: str = NET
    sides: Tensor | None = None
    rank: Tensor | None = None


def from_sides(sides: Tensor) -> ConflictInfo:
    """The measured conflict. ``sides`` is (rows, baselines, 4); conflicts and distances are averaged over baselines."""
    known = sides.double()
    r, u, y = known[..., :1], known[..., 1:3], known[..., 3:]
    amount = counteraction(y - u, u - r).amax(-1)
    return ConflictInfo(amount.mean(1).to(sides.dtype), (y - r)[..., 0].abs().mean(1).to(sides.dtype), MEASURED, sides)


def counteraction(first: Tensor, second: Tensor) -> Tensor:
    """Definition 3: the smaller of what is changed by removing one side, and then the other, if their signs differ."""
    size = torch.minimum(first.abs(), second.abs())
    return torch.where(first * second.sign() < 0, size, 0)


def from_nets(nets: Tensor) -> ConflictInfo:
    """The smaller of the sum of positive and the sum of negative net scores. ``nets`` is (rows, features)."""
    up, down = nets.clamp_min(0).sum(1), (-nets).clamp_min(0).sum(1)
    return ConflictInfo(torch.minimum(up, down), (up - down).abs(), NET)


def share_of(conflict: Tensor, left: Tensor) -> Tensor:
    """conflict / (conflict + left); 0 where both are 0."""
    total = conflict + left
    return torch.where(total > 0, conflict / torch.where(total > 0, total, torch.ones_like(total)), torch.zeros_like(total))


class ConflictFields:
    """What an explanation says of conflicts; it has scores and, if ``explain`` made it, a ``conflict_info``."""

    conflict_info: ConflictInfo | None
    positive: Tensors
    negative: Tensors
    combined: Tensors
    if TYPE_CHECKING:
        meta: Any

        @property
        def kind(self) -> str: ...
        @staticmethod
        def parts(tensors: Tensors) -> tuple[Tensor, ...]: ...
        def flat(self, tensors: Tensors) -> Tensor: ...

    @property
    def conflict(self) -> Tensor:
        """How much features cancelled of each other, in units of the output. (rows,)"""
        return self.between().conflict

    @property
    def conflict_left(self) -> Tensor:
        """What is left after that: the distance of the output from the output at the baseline. (rows,)"""
        return self.between().left

    @property
    def conflict_share(self) -> Tensor:
        """conflict / (conflict + what is left): 0 if nothing was cancelled, 0.5 if as much as is left, 1 if all. (rows,)"""
        info = self.between()
        return share_of(info.conflict, info.left)

    @property
    def conflict_kind(self) -> str:
        """How ``conflict`` was computed: "measured", by evaluating the model, or "net", from the net scores."""
        return self.between().kind

    @property
    def sides(self) -> Tensor | None:
        """(rows, baselines, 4) outputs of the model from which ``conflict`` follows; None if it comes from net scores.

        They are: at the baseline; with the features whose net is negative at the baseline; with those whose net is positive
        at the baseline; as it is.
        """
        return self.between().sides

    @property
    def conflict_rank(self) -> Tensor | None:
        """The part of the background rows with a smaller share of conflict; None before ``rank_conflict``. (rows,)"""
        return self.between().rank

    def rank_conflict(self, scale: ConflictScale) -> Any:
        """The explanation with the rank of its conflict among background rows, which views then show.

        Args:
            scale: What ``cafe.conflict_scale()`` gave.

        Returns:
            The explanation with ``conflict_rank``.

        Raises:
            ValueError: The rows of the scale were explained in another way.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(20, 2))
            >>> scale = cafe.conflict_scale()
            >>> e = cafe.explain(torch.ones(1, 2)).rank_conflict(scale)
            >>> 0 <= float(e.conflict_rank[0]) <= 1
            True
        """
        ranked: Any = self
        settings = {**self.meta.settings, "ranked_among": scale.among}
        return ranked.replace(conflict_info=replace(self.between(), rank=scale.rank(ranked)), settings=settings)

    @property
    def s_conf(self) -> Tensor:
        """The paper's conflict score: min(sum of positive, sum of negative) over the features. (rows,)"""
        return torch.minimum(self.flat(self.positive).sum(1), self.flat(self.negative).sum(1))

    @property
    def within(self) -> Tensor:
        """What features cancelled of themselves, along different ways: the sum of min(positive, negative). (rows,)

        Raises:
            ValueError: The scores come from path netting, where this grows with the depth of the model.
        """
        if self.meta.settings.get("netting") == "path":
            raise ValueError('explanation.within: not defined for netting="path". Use another variant.')
        return torch.minimum(self.flat(self.positive), self.flat(self.negative)).sum(1)

    def between(self) -> ConflictInfo:
        """Conflict, what is left, kind and sides together.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.between().conflict
            tensor([2., 0.])
        """
        if self.conflict_info is not None:
            return self.conflict_info
        nets = self.flat(self.combined)
        if self.kind == "image":
            index = cell_index(self.parts(self.combined)[0].shape[1:]).to(nets.device)
            nets = nets.new_zeros(len(nets), int(index.max()) + 1).index_add_(1, index, nets)
        return from_nets(nets)
