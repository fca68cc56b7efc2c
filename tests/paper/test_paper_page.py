"""The page of the paper and what it is written from: committed results, and what full presets cost."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from cafexai.models import Recipe, mlp, seeded, train
from cafexai.paper.studies import STUDIES, Finding, Report, Study, Task

ROOT = Path(__file__).parents[2]
TABLES, FIGURES = 13, 15  # as the paper counts them


def script(*path):
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path[-1]).stem, ROOT.joinpath(*path))
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT.joinpath(*path).parent))  # scripts import others beside them
    sys.modules[spec.name] = module  # its dataclass looks there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[0]
    return module


def test_committed_results_keep_their_config_and_the_page_of_the_paper_is_theirs():
    folders = [path.parent for path in (ROOT / "studies").glob("*/findings.json")]
    assert folders
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        assert folder.name == f"{config['study']}-{config['preset']}"
        assert all((folder / name).is_file() for name in ("results.json", "README.md"))
        study = STUDIES[config["study"]]
        assert json.loads(json.dumps(study.presets[config["preset"]])) == config["settings"], folder
        report = study.report(config["settings"], json.loads((folder / "results.json").read_text()))
        assert [str(finding) for finding in report.findings] == [
            str(Finding(**entry)) for entry in json.loads((folder / "findings.json").read_text())
        ], folder
    assert (ROOT / "docs" / "paper.md").read_text() == script("examples", "paper_page.py").page(ROOT / "studies")


def test_the_page_has_every_table_and_figure_of_the_paper():
    text = (ROOT / "docs" / "paper.md").read_text().partition("\n## ")[0]  # the first table
    found = {"Table": set(), "Figure": set()}
    for kind, first, last in re.findall(r"^\| (Table|Figure)s? (\d+)(?: (?:to|and) (\d+))?[^|]*\|", text, re.MULTILINE):
        found[kind] |= set(range(int(first), int(last or first) + 1))
    assert found == {"Table": set(range(1, TABLES + 1)), "Figure": set(range(1, FIGURES + 1))}
    order = [int(number) for number in re.findall(r"^\| Table (\d+)", text, re.MULTILINE)]
    assert order == sorted(order)  # the paper's
    assert text.count("\n| ") <= 35


def test_the_page_judges_every_finding_that_an_entry_takes():
    """A line of the first table says "holds" only if all claims on it do; a tie does not show that a method is better."""
    page = script("examples", "paper_page.py")
    numbers = "On 2 of 3, on {} of them lower by more than two standard errors; adult: 1 against 2."
    entry = page.Entry("", "some", [""], better=True)
    for clear, verdict in ((2, True), (1, None)):
        finding = Finding("a claim", True, numbers.format(clear))
        assert page.verdict_of(entry, finding) is verdict
        assert page.verdict_of(page.Entry("", "some", [""]), finding) is True
    assert page.verdict_of(entry, Finding("a claim", False, numbers.format(2))) is False
    words = {
        (True,): "holds",
        (True, None): "holds, some undecided",
        (True, False): "in part",
        (False, None, True): "in part, some undecided",
        (None,): "undecided",
        (False,): "does not hold",
    }
    assert {verdicts: page.word_of(set(verdicts)) for verdicts in words} == words


@pytest.fixture(scope="module")
def costs():
    return script("benchmarks", "study_costs.py")


def test_what_a_preset_costs_counts_every_training_and_leaves_it_as_it_was(costs, tmp_path):
    """Two kinds of networks, two seeds and five epochs; one is trained, the other is given."""
    x = torch.rand(64, 2)

    def tasks(settings, place):
        def trained():
            train(mlp(2, 4, 1), x, x.sum(1, keepdim=True), Recipe(settings["epochs"], loss="mse"), progress=False)

        for seed in settings["seeds"]:
            yield Task(f"own-{seed}", trained)
            yield Task(f"given-{seed}", lambda: sum(range(200_000)))

    preset = {"seeds": [1, 2], "epochs": 5}
    study = Study("one", "", "", {"full": preset}, {}, tasks, lambda settings, results: Report([], []))
    before = costs.training._run
    parts = dict(costs.measure(study, None, {}))
    assert costs.training._run is before
    assert (parts["own"]["epochs"], parts["own"]["networks"]) == (5, 2)
    assert parts["own"]["epoch"] > 0
    assert (parts["given"]["epoch"], parts["given"]["epochs"], parts["given"]["networks"]) == (0, 0, 2)
    assert dict(costs.measure(study, None, parts)) == {}


def test_what_a_preset_costs_from_few_batches_and_few_images(costs, tmp_path, monkeypatch):
    """An epoch of 200 batches and 50 images: one of five batches is trained, and two and four images are scored."""
    x, trained, scored = torch.rand(200, 2), [], []

    def tasks(settings, place):
        def run():
            model = seeded(0, lambda: mlp(2, 4, 1))
            model.register_forward_hook(lambda *_: trained.append(1) if model.training else None)
            train(
                model,
                x,
                x.sum(1, keepdim=True),
                Recipe(settings["epochs"], batch=1, loss="mse"),
                folder=tmp_path,
                progress=False,
            )
            scored.append(settings["images"])

        return [Task("one-1", run)]

    monkeypatch.setitem(costs.SOME, "one", ({"images": 2}, 25))
    times = iter(range(100))
    monkeypatch.setattr(costs.time, "process_time", lambda: float(next(times)))
    study = Study("one", "", "", {"full": {"seeds": [1], "epochs": 3, "images": 50}}, {}, tasks, lambda *_: Report([], []))
    part = dict(costs.measure(study, None, {}))["one"]
    assert (len(trained), scored) == (costs.BATCHES, [2, 4])
    assert (part["epochs"], part["networks"]) == (3, 1)
    assert costs.Epoch(times=5.0, cutting=1.0).whole(3.0) == 11.0


def test_minutes_of_a_preset(costs):
    parts = {
        "one": {"networks": 5, "epochs": 100, "epoch": 2.0, "rest": 40.0},
        "two": {"networks": 1, "epochs": 0, "epoch": 0.0, "rest": 60.0},
    }
    assert costs.minutes(parts) == 21.0  # (5 (200 + 40) + 60) / 60


def test_epochs_are_those_of_the_kind_of_network(costs):
    both = {"seeds": [1, 2], "epochs": {"mlp": 100, "ft": 50}, "demo_epochs": {"mlp": 2000, "ft": 7}}
    assert costs.short(both) == {"seeds": [1], "epochs": {"mlp": 1, "ft": 1}, "demo_epochs": {"mlp": 1, "ft": 1}}
    found = [costs.epochs_of(both, name) for name in ("mlp-titanic", "ft-titanic", "mlp-mimic", "ft-mimic")]
    assert found == [100, 50, 2000, 7]
    assert costs.epochs_of({"epochs": 20}, "compas-32") == 20
    assert costs.kind("ft-titanic-42") == "ft-titanic"


def test_committed_costs_have_all_parts_of_the_full_preset(costs):
    for name, cost in json.loads(costs.TARGET.read_text()).items():
        if cost["minutes"] is not None:
            assert set(cost["parts"]) == {
                costs.kind(task.key) for task in STUDIES[name].tasks(STUDIES[name].presets["full"], None)
            }
            assert cost["minutes"] == costs.minutes(cost["parts"])
