"""The page of the zoo is the one that its results make, and its results are those of the versions that are pinned."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDS = [json.loads(line) for line in (ROOT / "zoo" / "results.jsonl").read_text().splitlines()]


def test_the_page_fits_the_results(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(ROOT / "zoo"), *sys.path])
    import page

    page.write(tmp_path / "zoo.md")
    assert (tmp_path / "zoo.md").read_text() == (ROOT / "docs" / "zoo.md").read_text(), "run python zoo/page.py"


def test_every_model_is_there_once():
    names = [record["model"] for record in RECORDS]
    assert names == sorted(set(names))


def test_the_versions_are_those_pinned():
    lines = (ROOT / "zoo" / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert {(record["model"].split("/")[0], record["version"]) for record in RECORDS} <= set(pinned.items())


def test_what_is_called_explained_adds_up():
    explained = [record for record in RECORDS if record["verdict"] == "explained"]
    assert len(explained) > 10
    assert all(record["of allowed"] <= 1 and record["apart"] < 1e-3 for record in explained)


def test_nothing_is_wrong_and_every_refusal_has_a_remedy():
    ran = [record for record in RECORDS if record["verdict"] != "not run"]
    assert not [record["model"] for record in ran if record["verdict"] in ("wrong", "broken", "traceback")]
    assert sum(record["verdict"] == "explained" for record in ran) >= 0.95 * len(ran)
    remedies = [
        "Write the operation",
        "batch_size=1",
        "Instead:",
        "explain_neuron",
        "explain_layer",
        "check_operations",
        "pass x",
    ]
    remedies += ["target_layer=", "layer=", 'check="each"']  # in records of earlier versions
    refused = [record for record in ran if record["verdict"] == "refused"]
    assert not [record["model"] for record in refused if not any(word in record["why"] for word in remedies)]
