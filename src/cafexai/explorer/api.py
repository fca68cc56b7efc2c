"""What the page can ask for, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ..plotting.row_lines import ORDERS
from .circuits import units_view
from .classes import classes_of, usual_threshold
from .conflicts import inside_view, pairs_view
from .curves import curve
from .exports import command, python_lines, report, scores
from .methods import Runs
from .overview import by_group, drift, overview
from .requests import Choice, Refused, listing, mapping, whole, word
from .row import check_view, row_view
from .rows import Edits
from .scoring import Scoring, score_cohort
from .session import Session
from .table import SCORES, Table
from .usual_conflict import make_scale
from .writing import LONGEST, can_write, generation_view

Handler = Callable[["Api", dict[str, Any]], Any]


class Api:
    """Answers requests about one session; ``WITH_MODEL`` names what the worker of the model does."""

    def __init__(self, session: Session) -> None:
        self.session, self.table, self.runs = session, Table(session.rows), Runs(session)
        self.scoring = Scoring(session, session.rows, session.start)
        self.second = None if session.second is None else Scoring(session, session.second, session.start)
        self._begun = False

    def begin(self) -> None:
        """Score all rows in the background."""
        self._begun = True
        self.session.worker.background("scores", self.scoring.run())
        self.session.worker.background("scale", make_scale(self.session, self.scoring.choice))
        if self.second is not None:
            self.session.worker.background("second", self.second.run())

    def _begin_once(self) -> None:
        if not self._begun:
            self.begin()

    def _row(self, body: dict[str, Any]) -> tuple[int, Choice, Edits]:
        place = whole(body.get("row"), "row", len(self.session.rows) - 1)
        return place, self.session.read_choice(body.get("choice", {})), self.session.rows.check_edits(body.get("edits"))

    def _rows(self, body: dict[str, Any]) -> tuple[list[int], Choice, Edits]:
        """The chosen rows, or all that the table has found."""
        choice = self.session.read_choice(body.get("choice", {}))
        if body.get("table") is not None:
            places = self.table.order(mapping(body["table"], "table"), self.scoring).tolist()
            return places, choice, {}
        last = len(self.session.rows) - 1
        places = [whole(one, "rows", last) for one in listing(body.get("rows"), "rows", 20_000)]
        edits = self.session.rows.check_edits(body.get("edits")) if len(places) == 1 else {}
        return places, self.session.fix_target(places[0], choice) if edits else choice, edits

    def about(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the page must know once."""
        session = self.session
        form = session.rows.data.form
        return {
            "title": session.title,
            "rows": len(session.rows),
            "form": form,
            "outputs": session.output_names,
            "columns": self.table.columns(),
            "all_columns": len(self.table.names),
            "editable": {name: {"kind": one.kind, "words": one.words} for name, one in session.rows.editable.items()},
            "start": vars(session.start),
            "variants": list(session.variants),
            "baselines": session.baselines,
            "classes": classes_of(session),
            "threshold": usual_threshold(session),
            "probability": session.likely is not None,
            "endings": ["csv", *(["parquet"] if find_spec("pyarrow") else [])],
            "label": session.rows.label,
            "second": None if session.second is None else session.second_title,
            "writes": LONGEST if can_write(session) else 0,
        }

    def rows(self, body: dict[str, Any]) -> dict[str, Any]:
        """A page of the table; the first one is there before rows are scored."""
        page = self.table.page(body, self.scoring)
        self._begin_once()
        return {**page, "scores": [n for n in SCORES if n in self.scoring.columns], "progress": self.scoring.as_json()}

    def distribution(self, body: dict[str, Any]) -> dict[str, Any]:
        """Of one column."""
        return self.table.distribution(word(body.get("column"), self.table.names, "column"))

    def progress(self, body: dict[str, Any]) -> dict[str, Any]:
        """How far the scores are."""
        return self.scoring.as_json()

    def score(self, body: dict[str, Any]) -> dict[str, Any]:
        """Score all rows with another choice."""
        choice = self.session.read_choice(body.get("choice", {}))
        if choice != self.scoring.choice or self.scoring.trouble:
            self.scoring = Scoring(self.session, self.session.rows, choice)
            if self.session.second is not None:
                self.second = Scoring(self.session, self.session.second, choice)
            self.begin()
        return self.scoring.as_json()

    def row(self, body: dict[str, Any]) -> dict[str, Any]:
        """One row."""
        order = word(body.get("order", "net"), ORDERS, "order")
        return row_view(self.session, *self._row(body), whole(body.get("most", 20), "most", 2000) or 1, order)

    def check(self, body: dict[str, Any]) -> dict[str, Any]:
        """Does the model do what the scores of a row say?"""
        return check_view(self.session, *self._row(body))

    def generation(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the model writes after a text, token by token."""
        return generation_view(self.session, *self._row(body), whole(body.get("tokens", 8), "tokens", LONGEST))

    def pairs(self, body: dict[str, Any]) -> dict[str, Any]:
        """Which features cancel which: the exact map, and hidden conflicts."""
        return pairs_view(self.session, *self._row(body))

    def inside(self, body: dict[str, Any]) -> dict[str, Any]:
        """Which features cancelled which inside the model."""
        return inside_view(self.session, *self._row(body))

    def units(self, body: dict[str, Any]) -> dict[str, Any]:
        """Where in the model influence cancelled."""
        return units_view(self.session, *self._row(body))

    def curve(self, body: dict[str, Any]) -> dict[str, Any]:
        """What if one column of a row were different."""
        return curve(self.session, *self._row(body), body.get("column"))

    def overview(self, body: dict[str, Any]) -> dict[str, Any]:
        """What all rows have in common."""
        self._begin_once()
        return overview(self.scoring, self._output(body))

    def cohort(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the rows that fit a filter have in common."""
        places = self.table.cohort(body.get("table"), self.scoring)
        if places is None:
            return self.overview(body)
        if not len(places):
            raise Refused("No row fits the filter.", "table")
        found = overview(score_cohort(self.scoring, places), self._output(body))
        return {**found, "cohort": len(places), "rows": len(self.session.rows)}

    def _output(self, body: dict[str, Any]) -> int | None:
        """The output whose scores an overview shows; None is the most frequent one."""
        output = body.get("output")
        return None if output is None else whole(output, "output", max(self.session.count - 1, 0))

    def groups(self, body: dict[str, Any]) -> dict[str, Any]:
        """Conflict by group of rows."""
        cohort = self.table.cohort(body.get("table"), self.scoring)
        return by_group(self.table, self.scoring, body.get("column"), cohort)

    def drift(self, body: dict[str, Any]) -> dict[str, Any]:
        """Two files."""
        if self.second is None:
            raise Refused("There is no second file.")
        return drift(self.scoring, self.second, self._output(body))

    def methods(self, body: dict[str, Any]) -> dict[str, Any]:
        """The methods that run on this model, by name and in words, and why others do not."""
        return self.runs.able()

    def begin_method(self, body: dict[str, Any]) -> dict[str, Any]:
        """Another method."""
        return {"run": self.runs.begin(body.get("method"), *self._row(body))}

    def run(self, body: dict[str, Any]) -> dict[str, Any]:
        """How far another method is."""
        return self.runs.of(body.get("run")).as_json()

    def end_method(self, body: dict[str, Any]) -> dict[str, Any]:
        """Give it up."""
        run = self.runs.of(body.get("run"))
        run.ended.set()
        return run.as_json()

    def lines(self, body: dict[str, Any]) -> dict[str, Any]:
        """The same explanation in Python and as a command."""
        places, choice, edits = self._rows(body)
        known = {} if edits else {"command": command(self.session, places, choice)}
        return {"python": python_lines(self.session, places, choice, edits), **known}

    def report(self, body: dict[str, Any]) -> bytes:
        """A page that can be sent."""
        return report(self.session, *self._rows(body))

    def scores(self, body: dict[str, Any]) -> bytes:
        """Scores as a file."""
        return scores(self.session, *self._rows(body), word(body.get("ending"), ("csv", "parquet"), "ending"))


WITH_MODEL = ("row", "check", "generation", "pairs", "inside", "units", "curve", "cohort", "report", "scores")
OTHERS = (
    "about", "rows", "distribution", "progress", "score", "overview", "groups", "drift", "methods", "begin_method", "run",
    "end_method", "lines",
)  # fmt: skip
