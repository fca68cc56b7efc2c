"""Several estimators as one network: calibrated, voting and stacked ones."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .combine_steps import SideBySide
from .layers import Network, linear_layer

Make = Callable[[Any], Network]


class Members(nn.Module):
    """Networks on the same rows; each takes its own part of the features if they have steps of their own."""

    def __init__(self, networks: Sequence[Network], apart: bool) -> None:
        super().__init__()
        self.members = nn.ModuleList([one.layers for one in networks])
        ends = np.cumsum([0, *(one.width for one in networks)]).tolist()
        self.parts = [slice(a, b) if apart else slice(None) for a, b in itertools.pairwise(ends)]

    def outputs(self, x: Tensor) -> list[Tensor]:
        """(rows, outputs) of each."""
        return [member(x[:, part]) for member, part in zip(self.members, self.parts, strict=True)]


class MeanProbability(Members):
    """The logits of the weighted mean of probabilities, computed from logarithms, so that none is lost in rounding."""

    logs: Tensor

    def __init__(self, networks: Sequence[Network], apart: bool, weights: Sequence[float]) -> None:
        super().__init__(networks, apart)
        shares = torch.tensor(weights, dtype=torch.float64)
        self.register_buffer("logs", (shares / shares.sum()).log()[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """One output: log of p / (1 - p). Several: log p, of which a softmax gives p."""
        logits = torch.stack(self.outputs(x))
        if logits.shape[2] > 1:
            return (logits.log_softmax(2) + self.logs).logsumexp(0)
        up, down = (nn.functional.logsigmoid(one) + self.logs for one in (logits, -logits))
        return up.logsumexp(0) - down.logsumexp(0)


class Mean(Members):
    """The weighted mean of predictions."""

    def __init__(self, networks: Sequence[Network], apart: bool, weights: Sequence[float]) -> None:
        super().__init__(networks, apart)
        self.shares = [weight / sum(weights) for weight in weights]

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        parts = [share * one for share, one in zip(self.shares, self.outputs(x), strict=True)]
        return torch.stack(parts).sum(0)


class Stacked(Members):
    """A last network on the outputs, or the probabilities, of others, and on the features themselves if it takes them."""

    def __init__(self, networks: Sequence[Network], apart: bool, kinds: Sequence[str], last: Network, through: bool) -> None:
        super().__init__(networks, apart)
        self.kinds, self.through = list(kinds), through
        self.last = last.layers

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        made = [_chances(one, kind) for one, kind in zip(self.outputs(x), self.kinds, strict=False)]
        made += [x] if self.through else []
        return self.last(torch.cat(made, 1))


class Platt(nn.Module):
    """A calibrated classifier: its output, a linear map of each class, and what is left of these as logits."""

    def __init__(self, network: Network, kind: str, slopes: Sequence[float], starts: Sequence[float]) -> None:
        super().__init__()
        self.network, self.kind = network.layers, kind
        self.calibration = linear_layer(np.diag(-np.asarray(slopes)), -np.asarray(starts))

    def forward(self, x: Tensor) -> Tensor:
        """Two classes: the logit. More: log of each class' sigmoid, of which a softmax gives the probabilities."""
        logits = self.calibration(_chances(self.network(x), self.kind))
        return logits if logits.shape[1] == 1 else nn.functional.logsigmoid(logits)


def _chances(outputs: Tensor, kind: str) -> Tensor:
    """Outputs as the next stage takes them: as they are, or as probabilities."""
    if kind == "":
        return outputs
    return outputs.sigmoid() if kind == "sigmoid" else outputs.softmax(1)


def convert_calibrated(estimator: Any, make: Make, call: str) -> Network:
    """CalibratedClassifierCV with Platt's method: the mean over its classifiers."""
    if estimator.method != "sigmoid":
        raise ValueError(
            f"{call}: CalibratedClassifierCV(method={estimator.method!r}) is no network. Fit it with method='sigmoid', or pass "
            "its estimator, calibrated_classifiers_[0].estimator."
        )
    parts = []
    for one in estimator.calibrated_classifiers_:
        inner = make(one.estimator)
        if len(one.estimator.classes_) != len(estimator.classes_):
            raise ValueError(f"{call}: a classifier of CalibratedClassifierCV has not seen all classes. Use fewer folds.")
        kind = "" if hasattr(one.estimator, "decision_function") else _kind(inner, "predict_proba", call)
        layers = Platt(inner, kind, [c.a_ for c in one.calibrators], [c.b_ for c in one.calibrators])
        parts.append(dataclasses.replace(inner, layers=layers))
    classes = tuple(estimator.classes_)
    probability = "sigmoid" if len(classes) == 2 else "softmax"
    return _together(parts, MeanProbability, classes, probability, [1.0] * len(parts))


def voting(estimator: Any, make: Make, call: str) -> Network:
    """The mean of predictions, or of probabilities; a vote by heads has no scores."""
    kept = [weight for (_, one), weight in zip(estimator.estimators, _weights(estimator), strict=True) if one != "drop"]
    members = [make(one) for one in estimator.estimators_]
    if not hasattr(estimator, "classes_"):
        return _together(members, Mean, (), None, kept)
    if estimator.voting != "soft":
        raise ValueError(
            f"{call}: VotingClassifier(voting='hard') counts heads, which has no score. Fit it with voting='soft'."
        )
    kinds = {_kind(one, "predict_proba", call) for one in members}
    return _together(members, MeanProbability, tuple(estimator.classes_), kinds.pop(), kept)


def stacking(estimator: Any, make: Make, call: str) -> Network:
    """A last estimator on the predictions of others."""
    members = [make(one) for one in estimator.estimators_]
    kinds = [_kind(one, name, call) for one, name in zip(members, estimator.stack_method_, strict=True)]
    last = make(estimator.final_estimator_)
    if last.steps is not None:
        raise ValueError(f"{call}: the last estimator of a stack is a Pipeline, which is not supported. Fit it without steps.")
    if estimator.passthrough and any(one.steps is not None for one in members):
        raise ValueError(f"{call}: passthrough=True beside Pipelines is not supported. Fit with passthrough=False.")
    classes = tuple(getattr(estimator, "classes_", ()))
    return _together(members, Stacked, classes, last.probability, kinds, last, bool(estimator.passthrough))


ENSEMBLES: dict[str, Callable[[Any, Make, str], Network]] = {
    "CalibratedClassifierCV": convert_calibrated,
    "VotingClassifier": voting,
    "VotingRegressor": voting,
    "StackingClassifier": stacking,
    "StackingRegressor": stacking,
}


def _together(members: Sequence[Network], kind: Any, classes: tuple[Any, ...], probability: str | None, *more: Any) -> Network:
    """One network of several: on the same features, or side by side on those that each makes of the rows."""
    apart = any(one.steps is not None for one in members)
    layers = members[0].layers if kind is MeanProbability and len(members) == 1 else kind(members, apart, *more)
    if not apart:
        return Network(layers, members[0].width, members[0].columns, classes, probability)
    if len(members) == 1:
        return Network(layers, members[0].width, members[0].columns, classes, probability, members[0].steps)
    steps = SideBySide([(one.steps, one.width) for one in members])
    return Network(layers, sum(one.width for one in members), None, classes, probability, steps)


def _weights(estimator: Any) -> list[float]:
    return [1.0] * len(estimator.estimators) if estimator.weights is None else list(map(float, estimator.weights))


def _kind(network: Network, response: str, call: str) -> str:
    """What makes of the outputs of a network what ``response`` says: "" if nothing does."""
    if response == "predict_proba":
        if network.probability is None:
            raise ValueError(
                f"{call}: the probabilities of one of its classifiers are neither a sigmoid nor a softmax of its outputs."
            )
        return network.probability
    if response == "predict" and network.classes:
        raise ValueError(f"{call}: a stack of predicted classes has no scores. Fit with stack_method='predict_proba'.")
    return ""
