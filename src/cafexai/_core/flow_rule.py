"""Which share of cancelled influence an elementwise function passes on."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class FlowRule:
    """How cancelled influence shows behind a function: kind and conflict sensitivity constant c.

    ``kind``: "peak" (the paper) takes the larger of the two ways in which it could show, "mean" their mean,
    "extrema" is "peak" with what functions do between the points that this compares. c = 0 is the linear flow of all kinds.
    """

    kind: str = "peak"
    c: float = 0.5

    def at(self, c: float) -> FlowRule:
        """The same kind with another constant."""
        return replace(self, c=c)


LINEAR_FLOW = FlowRule("mean", 0.0)  # a function is taken as the line between reference and value
