"""One model, its data, and what has been computed of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.variant import Variant
from .._engine.hidden_conflicts import middle_baseline
from .._engine.job import as_arguments
from .._engine.output import select_output
from .._engine.output_probabilities import implied_probability
from .._inputs.background import Background, draw_places, draw_rows
from .._inputs.baselines import references
from .._inputs.convert import convert_inputs
from .._inputs.prepare import Inputs, has_own_columns, prepare
from ..cafe import CAFE
from ..explanation import Explanation, HiddenConflicts
from ..explanation.conflict_scale import ConflictScale
from ..plotting.conflict_words import baseline_words
from .requests import BACKGROUND, TYPICAL, Choice, Refused
from .rows import Edits, Rows, paint_regions, plain
from .worker import Worker

RECENT = 6  # results that are remembered


class Session:
    """Explains rows of the data. All that runs the model is done by ``worker``, slow methods by ``slow`` on a copy of it."""

    def __init__(
        self,
        cafe: CAFE,
        rows: Rows,
        *,
        second: Rows | None = None,
        output: Any = None,
        target: int | None = None,
        title: str = "data",
        second_title: str = "the second data",
        sources: dict[str, str] | None = None,
        typical: bool = False,
    ) -> None:
        self.cafe, self.rows, self.second = cafe, rows, second
        self.typical = typical and len(rows) > 1  # without a background, its own rows are one
        self.tokenizer, self.output, self.title = cafe.tokenizer, output, title
        self.second_title = second_title
        self.sources = sources or {}  # where model and data come from, in Python and as a command
        self.worker, self.slow = Worker("cafexai-model"), Worker("cafexai-methods")
        self._baselines: dict[str, Any] = {}
        self._recent: dict[Any, Any] = {}
        self.scales: dict[Choice, ConflictScale] = {}  # how much conflict is usual, by how rows are explained
        self._lock = threading.Lock()
        first = self.outputs(rows.inputs([0])[0])
        self.count = math.prod(first.shape[1:]) if first.ndim == 2 else 1  # of outputs that can be chosen
        if first.ndim > 2:
            raise ValueError(
                f"explore(...): the model gives outputs of shape {tuple(first.shape)}, and a page chooses among one row of "
                "them. Give output=, a function that picks such a row."
            )
        if not isinstance(cafe.c, (int, float)):
            raise ValueError("explore(CAFE(model, c={...}), ...): the page has one c for all layers; give one number.")
        self.likely = implied_probability(cafe.probability, len(cafe.class_names), self.count, self.takes_raw)
        self.variants = dict(Variant.PRESETS) | ({"custom": cafe.variant} if cafe.variant.name == "custom" else {})
        self.start = Choice(float(cafe.c), cafe.variant.name, self.baselines[0], target)

    @property
    def output_names(self) -> list[str]:
        """What the outputs are called; empty if there is only one."""
        if self.count < 2:
            return []
        names = self.cafe.class_names
        return list(names) if len(names) == self.count else [f"output {i}" for i in range(self.count)]

    def read_choice(self, given: Any) -> Choice:
        """The choice of a request."""
        return Choice.of(given, len(self.rows), self.count if self.count > 1 else 0, list(self.variants))

    def cafe_for(self, choice: Choice) -> CAFE:
        """The explainer with these settings."""
        return self.cafe.replace(c=choice.c, variant=self.variants[choice.variant])

    def explain(
        self, places: Sequence[int], choice: Choice, edits: Edits | None = None, *, rows: Rows | None = None, **more: Any
    ) -> Explanation:
        """The scores of some rows, or of these with changes."""
        inputs, display = (self.rows if rows is None else rows).inputs(places, edits)
        baseline = self.baseline(choice.baseline)
        if edits and edits.get("regions"):
            inputs, display = paint_regions(inputs, display, edits["regions"], baseline)
        labels = (self.rows if rows is None else rows).data.labels
        e = self._explain_with(choice, inputs, baseline, display, more)
        return e if labels is None else e.replace(row_names=tuple(labels[place] for place in places))

    def of_row(self, place: int, choice: Choice) -> Explanation:
        """One row as it is; the last ones are remembered, for changes are held against them."""
        return self._remember(("explained", place, choice), lambda: self.explain([place], choice))

    def rank_conflict(self, e: Explanation, choice: Choice) -> Explanation:
        """The explanation with the rank of its conflict among background rows, once these are explained in the same way."""
        scale = self.scales.get(choice)
        if scale is not None:
            with contextlib.suppress(ValueError):  # it is explained in another way: a value is missing in its baseline
                e = e.rank_conflict(scale)
        return e

    def hidden(self, e: Explanation, choice: Choice) -> HiddenConflicts:
        """The exact map of pairs of features of an explained row, and hidden conflicts."""
        try:
            return self.cafe_for(choice).hidden_conflicts(e)
        except (ValueError, RuntimeError) as error:
            raise Refused(str(error)) from error

    def name_baseline(self, choice: Choice, number: int, count: int, words: str) -> str:
        """The baseline that a row is held against; ``words`` are for that of this number among several."""
        word = choice.baseline
        if count > 1:
            return words if self.cafe.background is not None else f"{self.rows.name(self._draw(count)[number])}, {words}"
        if word.startswith("row:"):
            return self.rows.name(int(word.removeprefix("row:")))
        return {"mask": "the mask token"}.get(word) or (f"the {word} of the data" if word in TYPICAL else word)

    def outputs_of(self, place: int, edits: Edits) -> Tensor:
        """All outputs for one row; the last ones are remembered, for they do not change with the choice."""
        return self._remember(("outputs", place, repr(edits)), lambda: self.outputs(self.rows.inputs([place], edits)[0]))

    def _remember(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._recent:
            made = make()
            while len(self._recent) >= RECENT:
                self._recent.pop(next(iter(self._recent)), None)
            self._recent[key] = made
        return self._recent[key]

    def fix_target(self, place: int, choice: Choice) -> Choice:
        """The choice with the output that is predicted for the row as it is: changes are told of the same one."""
        if self.count < 2 or choice.target is not None:
            return choice
        outputs = self.outputs_of(place, {})
        return dataclasses.replace(choice, target=int(outputs[0].argmax()))

    def apply_edits(self, place: int, choice: Choice, edits: Edits) -> tuple[Any, Any]:
        """A row with changes in the form that the model takes, and its baseline."""
        inputs, display = self.rows.inputs([place], edits)
        baseline = self.baseline(choice.baseline)
        if edits.get("regions"):
            inputs, _ = paint_regions(inputs, display, edits["regions"], baseline)
        return inputs, baseline

    def middle_reference(self, e: Explanation, choice: Choice) -> tuple[tuple[Tensor, ...], str]:
        """Of the typical rows that a row is compared with the one whose output is in the middle, and its name."""
        assert e.job is not None
        number, count = middle_baseline(e), len(e.job.stack)
        parts = zip(e.job.stack[number], e.job.given.tensors, strict=True)
        start = tuple(torch.zeros_like(x) if part is None else part for part, x in parts)
        return start, self.name_baseline(choice, number, count, baseline_words(number, count, True, e.sides is not None))

    def reference(self, given: Inputs, baseline: Any) -> tuple[Tensor, ...]:
        """The baseline of a row as tensors, zeros written out."""
        if isinstance(baseline, Background):
            raise Refused("This view takes one baseline: choose zero, a mean, median or mode, or a row.", "baseline")
        (parts, *more) = references(baseline, given, None, self.cafe.model)
        if more or any(part is None and not x.is_floating_point() for part, x in zip(parts, given.tensors, strict=True)):
            raise Refused("Its baseline is no row of its inputs.", "baseline")
        return tuple(torch.zeros_like(x) if part is None else part for part, x in zip(parts, given.tensors, strict=True))

    def explain_inputs(self, inputs: Any, choice: Choice) -> Explanation:
        """The scores of rows in the form that the model takes."""
        return self._explain_with(choice, inputs, self.baseline(choice.baseline), None, {})

    def _explain_with(self, choice: Choice, inputs: Any, baseline: Any, display: Any, more: dict[str, Any]) -> Explanation:
        try:
            return self.cafe_for(choice).explain(
                inputs,
                "zero" if baseline is None and self.rows.data.form == "table" else baseline,
                target=choice.target,
                against=choice.against,
                display=display,
                output=self.output,
                show_progress=False,
                **more,
            )
        except (ValueError, RuntimeError) as error:
            raise Refused(str(error), _field(str(error))) from error

    @property
    def baselines(self) -> list[str]:
        """The words for what rows may be compared with, the usual one first."""
        if self.rows.data.form != "texts":
            table = self.rows.data.form == "table"
            known = ["zero", *([BACKGROUND] if table else []), *TYPICAL, "row"]
            own = self.takes_raw or self.cafe.schema is not None  # columns that people know, in which zero is not typical
            first = table and own and (self.typical or self.cafe.background is not None)
            return sorted(known, key=lambda word: word != BACKGROUND) if first else known
        return ["mask", "zero"] if getattr(self.tokenizer, "mask_token_id", None) is not None else ["zero"]

    def baseline(self, word: str) -> Any:
        """What rows are compared with, as ``explain`` takes it; typical rows are made once."""
        if self.rows.data.form == "texts" and self.tokenizer is not None and word in self.baselines:
            return word
        if word == "zero":
            return None
        with self._lock:
            if word not in self._baselines:
                self._baselines[word] = self._make_baseline(word)
            return self._baselines[word]

    def _make_baseline(self, word: str) -> Any:
        if self.rows.data.form == "texts":
            raise Refused(f"Texts are compared with: {', '.join(self.baselines)}.", "baseline")
        if word == "mask":
            raise Refused("Only texts have a mask token.", "baseline")
        try:
            if word == BACKGROUND:
                return self._background()
            if word not in TYPICAL:
                return self.rows.inputs([int(word.removeprefix("row:"))])[0]
            data = self.cafe.background if self.cafe.background is not None else self.rows.all()
            model = self.cafe.model
            if has_own_columns(model):
                return model.typical(word, data)
            given = self.prepare_inputs(self.rows.inputs([0])[0])
            (parts, *_) = references(word, given, data, model)
            return tuple(parts) if given.is_tuple or len(parts) > 1 else parts[0]
        except ValueError as error:
            raise Refused(str(error), "baseline") from error

    def _background(self) -> Background:
        """Rows of the background, or of the data, that each row is compared with."""
        return Background(self.typical_rows(Background(None).k) if self.cafe.background is None else self.cafe.background)

    def typical_rows(self, most: int) -> Any:
        """At most so many rows of the background, or of the data, drawn at random; always the same."""
        if self.cafe.background is not None:
            return draw_rows(self.cafe.background, most, 0)
        return self.rows.inputs(self._draw(most))[0]

    def _draw(self, most: int) -> list[int]:
        """The places of rows of the data, drawn at random."""
        return [self._usable[i] for i in draw_places(len(self._usable), most, 0).tolist()]

    @cached_property
    def _usable(self) -> Sequence[int]:
        """The places of the rows that the schema does not refuse."""
        schema, everywhere = self.cafe.schema, range(len(self.rows))
        if schema is None or self.rows.data.form != "table" or not set(schema.names) <= set(self.rows.data.names):
            return everywhere
        refused = schema.check(self.rows.data.rows, self.cafe.allow_nan)
        return [place for place in everywhere if place not in refused] or everywhere

    def baseline_cells(self, word: str) -> dict[str, Any]:
        """The values of the baseline in the units of the columns, where it has such."""
        rows = self.rows
        if word.startswith("row:"):
            return rows.cells(int(word.removeprefix("row:")))
        if word == BACKGROUND:
            return {}  # these are many rows
        made = self.baseline(word)
        if has_own_columns(self.cafe.model):
            return {} if made is None else _first_row(made, rows)
        if self.takes_raw or rows.data.form != "table":
            return {}
        if made is None:
            return {name: 0 for name, column in rows.editable.items() if column.kind == "number"}
        if rows.schema is not None:
            parts = made if isinstance(made, tuple) else (made,)
            _, values, words = rows.schema.match_columns([part.reshape(1, -1) for part in parts], "explore")
            found = dict(zip(rows.schema.names, values[0].tolist(), strict=True))
            named = {name: words[name][int(value)] if name in words else value for name, value in found.items()}
            return {name: value for name, value in named.items() if value not in ("(none)", "(several)")}
        return dict(zip(rows.columns, made.reshape(-1).tolist(), strict=True))

    @property
    def takes_raw(self) -> bool:
        """The model has a preprocessing step of its own."""
        return bool(self.cafe._subject.takes_raw)

    def prepare_inputs(self, inputs: Any) -> Inputs:
        """Inputs as tensors."""
        ready = convert_inputs(inputs, None, self.tokenizer, None, None, self.takes_raw)
        return prepare(ready.inputs, self.cafe.model, columns=self.cafe.feature_names, schema=self.cafe.schema, mask=ready.mask)

    def outputs(self, inputs: Any) -> Tensor:
        """All outputs of the model for some rows."""
        ready = convert_inputs(inputs, None, self.tokenizer, None, None, self.takes_raw)
        extra = as_arguments(ready.extra)
        words, named = ((), extra) if isinstance(extra, dict) else (extra, {})
        subject = self.cafe._subject
        with torch.no_grad(), subject.guard_state():
            raw = subject.model(*self.prepare_inputs(inputs).tensors, *words, **named)
        return select_output(raw, self.output).detach().cpu().double()

    def probabilities(self, outputs: Tensor, final: str | None) -> Tensor | None:
        """Outputs as probabilities, where it is known what makes them; ``final`` is what the model itself ends in."""
        if final is not None or self.likely is None:
            return outputs if final is not None else None
        return outputs.softmax(1) if self.likely == "softmax" and outputs.ndim == 2 else outputs.sigmoid()

    def end(self) -> None:
        """No further work."""
        self.worker.end()
        self.slow.end()


def _first_row(made: Any, rows: Rows) -> dict[str, Any]:
    """A typical row of a pipeline, by column."""
    if hasattr(made, "iloc"):
        row = made.iloc[0]
        return {name: plain(row[name]) for name in rows.editable if name in row.index}
    flat = np.asarray(made, dtype=object).reshape(-1)
    return {name: plain(value) for name, value in zip(rows.columns, flat, strict=True) if name in rows.editable}


def _field(message: str) -> str:
    """The field of the page that an error of explain is about."""
    return next((name for name in ("baselines", "target", "against") if f"{name}=" in message), "").removesuffix("s")
