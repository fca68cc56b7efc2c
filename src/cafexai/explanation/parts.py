"""The parts of an explanation beside its scores: features, checks, meta data, refinement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .._inputs.target import OTHERS
from .conflict import ConflictInfo

Tensors = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class FeatureInfo:
    """What is known of the features.

    Args:
        names: One name per feature; None makes them up from their positions.
        tokens: For token ids: the words of each row.
        display: The inputs in the units of the user, if a preprocessing step changed them.
        categories: Feature -> the names of its codes in ``display``.
        baseline_display: (rows, features): the baselines in the units of the user, if these are known; of several baselines
            the mean of a number, the most frequent category.
        at_baseline: (rows, features): the feature is as in every baseline; None: compare inputs and baselines.
    """

    names: tuple[str, ...] | None = None
    tokens: tuple[tuple[str, ...], ...] | None = None
    display: Tensor | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline_display: Tensor | None = None
    at_baseline: Tensor | None = None


@dataclass(frozen=True)
class Checks:
    """How exactly the scores sum to the output, and what they cannot show.

    Args:
        completeness_error: combined + bias - (output - baseline_output), (rows,).
        output_error: The largest difference between the explained output and that of the model.
        model_at_baseline: With ``biases="reference"``, the output of the model at the baseline, (rows,).
        cut: Feature whose gradient path is broken (cast, ``.item()``, ``.detach()``) -> output change when it is set to its
            baseline, (rows,).
        lost: With ``explain_blocks``, what the model loses without the first and the second block, (rows, 2).
    """

    completeness_error: Tensor
    output_error: float = 0.0
    model_at_baseline: Tensor | None = None
    cut: Mapping[str, Tensor] = field(default_factory=dict)
    lost: Tensor | None = None


@dataclass(frozen=True)
class Meta:
    """How the explanation was made.

    Args:
        settings: c, options of the variant, layer, versions.
        notes: Remarks on how the explanation was made.
        frozen: What was treated as a constant, and where.
        final: "sigmoid" or "softmax": left out at the end, the scores are about its logit.
        class_names: Names of the outputs.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    final: str | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def c(self) -> Any:
        """The conflict sensitivity."""
        return self.settings.get("c")

    @property
    def variant(self) -> str:
        """The name of the variant: "default", "published", "feature" or "custom"."""
        return str(self.settings.get("variant", "custom"))

    @property
    def versions(self) -> dict[str, str]:
        """The versions of cafexai and torch."""
        return {"cafexai": str(self.settings.get("version", "")), "torch": str(self.settings.get("torch", ""))}


@dataclass(frozen=True)
class Refinement:
    """What evaluations at perturbed rows add to the net scores (``CAFE.refine``).

    Args:
        correction: Like combined, sum 0.
        absent: Like combined: for features at their baseline, the change per unit; not part of the sum.
        correction_error: Like combined: standard errors of correction and absent.
        combined_error: (rows,): root mean square of what combined misses at the perturbed rows.
        refined_error: (rows,): what refined + absent misses there, held out of the fit.
    """

    correction: Tensors
    absent: Tensors
    correction_error: Tensors
    combined_error: Tensor
    refined_error: Tensor


# Where each flat name lives: in files, and as attributes of version 0.1.
PLACES = {
    **{name: ("features", name) for name in ("tokens", "display", "categories", "baseline_display", "at_baseline")},
    "feature_names": ("features", "names"),
    **{name: ("checks", name) for name in ("completeness_error", "output_error", "model_at_baseline", "cut", "lost")},
    **{name: ("meta", name) for name in ("settings", "notes", "frozen", "final", "class_names")},
    **{name: ("refinement", name) for name in ("correction", "absent", "correction_error", "combined_error", "refined_error")},
    "conflict": ("conflict_info", "conflict"),
    "conflict_left": ("conflict_info", "left"),
    "conflict_kind": ("conflict_info", "kind"),
    "sides": ("conflict_info", "sides"),
    "conflict_rank": ("conflict_info", "rank"),
}
KINDS = {"conflict_info": ConflictInfo, "features": FeatureInfo, "checks": Checks, "meta": Meta, "refinement": Refinement}


def name_output(index: list[int], names: tuple[str, ...] | None) -> str:
    """One output by its name, or by its place."""
    if index and index[0] == OTHERS:
        return "the mean of the others"
    if names is not None and len(index) <= 1:
        return repr(names[index[0] if index else 0])
    return "" if not index else str(index[0] if len(index) == 1 else tuple(index))
