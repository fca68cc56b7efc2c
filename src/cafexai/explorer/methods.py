"""Other methods beside CAFE: they may take long, so that they run on their own, tell how far they are and can be ended."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn

from .._engine.output import select_output
from ..methods import METHODS, scores_groups
from ..plotting.row_lines import number
from .requests import BACKGROUND, Choice, Refused, word
from .rows import Edits
from .session import Session
from .worker import Superseded

KEPT = 20  # runs whose results are remembered


LABELS = {
    "cafe": "CAFE",
    "cafe_published": "CAFE as published",
    "cafe_refined": "CAFE, refined",
    "lrp": "LRP",
    "deeplift_rescale": "DeepLIFT (Rescale)",
    "deeplift_revealcancel": "DeepLIFT (RevealCancel)",
    "bias_backpropagation": "Bias back-propagation",
    "gradient_x_input": "Gradient \u00d7 input",
    "gradient_shap": "Gradient SHAP",
    "smoothgrad": "SmoothGrad",
    "kernel_shap": "Kernel SHAP",
    "lime": "LIME",
    "cp_lrp": "CP-LRP",
    "attn_lrp": "AttnLRP",
    "gim": "GIM",
}
TRIED = 3  # calls of the model after which a method is taken to run


def label(method: str) -> str:
    """A method in words."""
    return LABELS.get(method) or method.replace("_", " ").capitalize()


class Stopped(Exception):
    """Somebody ended the run."""


class Run:
    """One method on one row."""

    def __init__(self, method: str) -> None:
        self.method, self.calls, self.seconds = method, 0, 0.0
        self.state, self.trouble = "waiting", ""
        self.scores: list[dict[str, Any]] = []
        self.output = ""
        self.limit: int | None = None  # calls of the model after which it is given up
        self.ended = threading.Event()

    def as_json(self) -> dict[str, Any]:
        """How far it is, and what came out."""
        names = ("method", "calls", "seconds", "state", "trouble", "scores", "output")
        return {name: getattr(self, name) for name in names}


class _Watched(nn.Module):
    """A copy of the model that gives the one explained number of each row, counts its calls and can be ended."""

    def __init__(self, session: Session, target: int | None, against: int | None, run: Run) -> None:
        super().__init__()
        model = session.cafe.model
        try:
            self.model = copy.deepcopy(model)
        except Exception:  # what cannot be copied is used as it is
            self.model = model
        self.chosen, self.against, self.select, self.run = target, against, session.output, run
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if self.run.ended.is_set() or self.run.calls == self.run.limit:
            raise Stopped
        self.run.calls += 1
        out = select_output(self.model(x), self.select)
        if out.ndim == 1:
            return out
        picked = out[:, self.chosen or 0]
        return picked if self.against is None else picked - out[:, self.against]


class Runs:
    """All runs of a session, by number."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._runs: dict[int, Run] = {}
        self._numbers = itertools.count(1)
        self._lock, self._trial = threading.Lock(), threading.Lock()
        self._able: dict[str, Any] = {}

    def able(self) -> dict[str, Any]:
        """The methods that run on this model, tried once on the first row with a few calls, and why others do not."""
        with self._trial:
            if not self._able:
                found = self.session.slow.ask("methods", self._try_all).result()
                self._able.update(found)
        return self._able

    def _try_all(self) -> dict[str, Any]:
        offered, refused = [{"name": "cafe", "label": label("cafe")}], []
        start = self.session.start
        one = dataclasses.replace(start, baseline="zero") if start.baseline == BACKGROUND else start  # they take one baseline
        for name in METHODS:
            if name == "cafe":
                continue
            run = Run(name)
            run.limit = TRIED
            try:
                self._carry_out(run, 0, one, {})
            except Stopped:  # it got as far as it was let
                pass
            except Exception as error:  # whatever a method raises is the reason why it is not offered
                refused.append({"label": label(name), "reason": " ".join(str(error).split())[:200] or type(error).__name__})
                continue
            offered.append({"name": name, "label": label(name)})
        return {"methods": offered, "refused": refused}

    def begin(self, method: Any, place: int, choice: Choice, edits: Edits) -> int:
        """Start a method; its number."""
        run = Run(word(method, [name for name in METHODS if name != "cafe"], "method"))
        with self._lock:
            place_of_run = next(self._numbers)
            self._runs[place_of_run] = run
            for old in list(self._runs)[:-KEPT]:
                self._runs.pop(old).ended.set()
        future = self.session.slow.ask(f"run {place_of_run}", lambda: self._carry_out(run, place, choice, edits))
        future.add_done_callback(lambda done: _note(run, done))
        return place_of_run

    def of(self, key: Any) -> Run:
        """A run by its number."""
        if isinstance(key, bool) or not isinstance(key, int) or key not in self._runs:
            raise Refused("There is no such run.", "method")
        return self._runs[key]

    def _carry_out(self, run: Run, place: int, choice: Choice, edits: Edits) -> None:
        if run.ended.is_set():
            raise Stopped
        begin, run.state = time.monotonic(), "running"
        session = self.session
        given = session.prepare_inputs(session.rows.inputs([place], edits)[0])
        if len(given.tensors) > 1 or not given.tensors[0].is_floating_point():
            raise Refused("Other methods take one input of numbers; this model takes codes or several inputs.")
        model = _Watched(session, session.fix_target(place, choice).target, choice.against, run)
        x = given.tensors[0].clone()
        (start,) = session.reference(given, session.baseline(choice.baseline))
        features = torch.arange(x[0].numel()) if given.grouping is None else given.grouping.index
        groups = None if given.grouping is None else features.reshape(x.shape[1:])
        result = METHODS[run.method](model, x, baselines=start, feature_groups=groups).detach().double().cpu()
        flat = result.reshape(-1)
        known = given.grouping.names if given.grouping is not None else given.names
        names = list(known or (f"x{i}" for i in range(len(flat))))
        sums = torch.zeros(len(names), dtype=torch.float64)
        if scores_groups(METHODS[run.method]):
            sums[features] = flat  # every element has the score of its group
        else:
            sums.index_add_(0, features, flat)
        run.scores = [{"name": n, "exact": s, "net": number(s)} for n, s in zip(names, sums.tolist(), strict=True)]
        with torch.no_grad():
            run.output = number(model(x)[0].item())
        run.seconds = time.monotonic() - begin


def _note(run: Run, done: Any) -> None:
    error = done.exception()
    if error is None:
        run.state = "done"
    elif isinstance(error, (Stopped, Superseded)) or run.ended.is_set():
        run.state = "ended"
    else:
        run.state, run.trouble = "failed", str(error) or type(error).__name__
