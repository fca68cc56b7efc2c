"""Variants: named sets of the options that decide how influence is propagated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

ALLOWED: Mapping[str, Mapping[str, str]] = {  # option -> value -> what it means
    "netting": {
        "path": "positive and negative influence are kept apart along every path, as in the paper",
        "unit": "the direct inputs of a unit are in conflict, with their net values",
        "feature": "the paths of one feature are summed before they meet those of other features",
    },
    "flows": {
        "peak": "cancelled influence shows in the larger of its two directions, as in the paper",
        "mean": "cancelled influence shows in the mean of its two directions",
        "extrema": "as peak, and what GELU and its kind do and undo below their minimum shows too; by path only",
    },
    "biases": {
        "scores": "biases have scores of their own, as in the paper",
        "reference": "biases belong to the reference; scores explain the change from the output at the baseline",
    },
    "norms": {
        "frozen": "the statistics of a norm are constants, as in the paper",
        "open": "the effect of features on the statistics of a norm counts",
    },
    "norm_mean": {
        "bias": "the mean inside a frozen norm is a constant, as in the paper",
        "linear": "the mean inside a frozen norm is a linear map of the features",
    },
    "attention": {
        "frozen": "attention weights are constants, as in the paper",
        "open": "the effect of features on attention weights counts",
    },
}
# (option, value) -> options that this value freezes. Frozen is also what you get if you do not name them.
IMPLIED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("netting", "path"): ("attention",),
    ("biases", "scores"): ("norms", "attention"),
}
_UNSET = ""  # replaced by the value of the default variant, or by what other options imply
_OTHER = {"netting": "unit", "biases": "reference"}  # values that freeze nothing
_USUAL = {"norms": "open", "attention": "open"}


class VariantOptions(TypedDict, total=False):
    """The options of a variant, as keywords of ``CAFE``."""

    netting: str | None
    flows: str | None
    biases: str | None
    norms: str | None
    norm_mean: str | None
    attention: str | None


@dataclass(frozen=True)
class Variant:
    """How influence is propagated: six options. ``Variant()`` is the default; ``Variant.preset("published")`` the paper.

    Args:
        netting: What is in conflict: "path", "unit" or "feature".
        flows: What shows of cancelled influence: "peak", "mean" or, by path only, "extrema".
        biases: Whether biases have scores of their own ("scores") or belong to the reference ("reference").
        norms: Whether the statistics of norms are constants: "frozen" or "open".
        norm_mean: What the mean inside a frozen norm is: "bias" or "linear". It has no effect where norms are open.
        attention: Whether attention weights are constants: "frozen" or "open".

    Raises:
        ValueError: An option has an unknown value, or two options cannot go together.

    Example:
        >>> Variant.preset("published").replace(flows="mean").netting
        'path'
    """

    netting: str = "unit"
    flows: str = "mean"
    biases: str = "reference"
    norms: str = _UNSET
    norm_mean: str = "bias"
    attention: str = _UNSET

    PRESETS: ClassVar[Mapping[str, Variant]]

    def __post_init__(self) -> None:
        for name, allowed in ALLOWED.items():
            value = getattr(self, name)
            if name in _USUAL and value == _UNSET:
                value = "frozen" if self._frozen_by(name) else _USUAL[name]
                object.__setattr__(self, name, value)
            if value not in allowed:
                words = "; ".join(f"{word!r} ({meaning})" for word, meaning in allowed.items())
                raise ValueError(f"Variant({name}={value!r}): unknown value. Allowed values: {words}.")
        for name in _USUAL:
            if getattr(self, name) != "frozen" and (cause := self._frozen_by(name)):
                option, value = cause
                raise ValueError(
                    f'Variant({option}={value!r}, {name}={getattr(self, name)!r}): {option}={value!r} needs {name}="frozen". '
                    f"Drop {name}=, or set {option}={_OTHER[option]!r} too."
                )
        if self.flows == "extrema" and self.netting != "path":
            raise ValueError(
                f'Variant(flows="extrema", netting={self.netting!r}): units hand on net values there, in which a change that '
                'is undone does not show. Set netting="path" too, or flows="peak".'
            )

    def _frozen_by(self, name: str) -> tuple[str, str] | None:
        """The option and value that freeze ``name``, if any."""
        causes = (cause for cause, frozen in IMPLIED.items() if name in frozen)
        return next((cause for cause in causes if getattr(self, cause[0]) == cause[1]), None)

    def replace(self, **options: Any) -> Variant:
        """This variant with some options changed; all others keep their values.

        Args:
            **options: New values, by option. A value that freezes norms or attention does so if these are not named.

        Returns:
            The changed variant.

        Raises:
            ValueError: An option or a value is unknown, or two options cannot go together.

        Example:
            >>> Variant().replace(biases="scores").norms
            'frozen'
        """
        named = {name: value for name, value in options.items() if value is not None}
        if unknown := sorted(set(named) - set(ALLOWED)):
            raise ValueError(f"Variant.replace({unknown[0]}=...): unknown option. Options: {', '.join(ALLOWED)}.")
        implied = {
            name: "frozen"
            for (option, value), frozen in IMPLIED.items()
            if named.get(option) == value
            for name in frozen
            if name not in named
        }
        return dataclasses.replace(self, **{**implied, **named})

    @classmethod
    def preset(cls, name: str) -> Variant:
        """A variant by name.

        Args:
            name: "default"; "published", the paper to the letter; or "feature", the default with netting by feature.

        Returns:
            The variant.

        Raises:
            ValueError: There is no variant of this name.

        Example:
            >>> Variant.preset("default") == Variant()
            True
        """
        if name not in cls.PRESETS:
            known = ", ".join(map(repr, cls.PRESETS))
            raise ValueError(f"CAFE(..., variant={name!r}): unknown variant. Allowed values: {known}, or a cafexai.Variant.")
        return cls.PRESETS[name]

    @property
    def name(self) -> str:
        """The name of this variant, or "custom"."""
        return next((name for name, preset in self.PRESETS.items() if preset == self), "custom")

    def __str__(self) -> str:
        """The nearest preset, and what differs from it."""
        if self.name != "custom":
            return self.name
        changes = {name: self.changes_from(preset) for name, preset in self.PRESETS.items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return f"{nearest} with " + ", ".join(f"{option}={value!r}" for option, value in changes[nearest].items())

    def changes_from(self, other: Variant) -> dict[str, str]:
        """The options whose values differ from those of ``other``.

        Args:
            other: Another variant.

        Returns:
            Option -> the value in this variant, for the options that differ.

        Example:
            >>> from cafexai import Variant
            >>> Variant(flows="peak").changes_from(Variant())
            {'flows': 'peak'}
        """
        return {name: getattr(self, name) for name in ALLOWED if getattr(self, name) != getattr(other, name)}


Variant.PRESETS = {
    "default": Variant(),
    "published": Variant(netting="path", flows="peak", biases="scores", norms="frozen", norm_mean="bias", attention="frozen"),
    "feature": Variant(netting="feature"),
}
