"""Every study at toy size through the command line; what it leaves behind; what it says when the user is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors
import torch

from cafexai import cli, metrics
from cafexai.paper.studies import STUDIES, Finding, Report, Study, Table, Task, infidelity, infidelity_report, run
from cafexai.paper.studies.methods import method
from cafexai.paper.studies.published_numbers import METHOD_TITLES, paper
from cafexai.paper.studies.record import brief
from cafexai.paper.studies.variants import TABLES, Variant

ROOT = Path(__file__).parents[2]
FIGURES = {"depth": 1, "examples-tabular": 1, "examples-images": 1, "circuit": 1, "awareness": 1}
MUST_HOLD = {  # on any network, also on one that is hardly trained
    "depth": "in float32 are within 0.001",
    "circuit": "CAFE 1 shows the cancelled effect in full",
    "awareness": "Theorem 1",
    "units": "exact in every variant with biases in the reference",
    "examples-tabular": "add up to the output",
}
# test_studies_*.py
ELSEWHERE = {
    "synthetic-trained",
    "synthetic-procedural",
    "prevalence",
    "shift-tabular",
    "shift-images",
    "shift-clothes",
    "monitor",
    "worked-tables",
}
ELSEWHERE |= {"authors-protocol"}


def command(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    line = [sys.executable, "-m", "cafexai", "study", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300, **options)


def published(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in ELSEWHERE])
def test_a_study_through_the_command_line(name, data, tmp_path):
    out = tmp_path / "results"
    done = command(name, "--preset", "toy", "--out", out, "--data", data)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert {"config.json", "results.json", "findings.json", "README.md"} <= published(out)
    findings = [Finding(**entry) for entry in json.loads((out / "findings.json").read_text())]
    assert findings
    if name in MUST_HOLD:
        assert [finding.holds for finding in findings if MUST_HOLD[name] in finding.claim] == [True]
    page = (out / "README.md").read_text()
    assert "Smaller than the paper's" in page
    for finding in findings:
        assert str(finding) in done.stdout
        assert str(finding) in page
    pictures = {kind: [path for path in out.glob(f"*.{kind}") if path.stat().st_size > 2000] for kind in ("png", "svg")}
    assert len(pictures["png"]) == len(pictures["svg"]) == FIGURES.get(name, 0)
    tables = {path.stem for path in out.glob("*.csv")}
    assert tables
    assert tables <= {path.stem for path in out.glob("*.md")}

    parts = {path.name: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    before = {path: (out / path).read_bytes() for path in published(out)}
    run(STUDIES[name], "toy", out, data=str(data), show_progress=False)  # nothing is left to do
    assert {path.name: path.stat().st_mtime_ns for path in (out / "parts").iterdir()} == parts
    assert {path: (out / path).read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["examples-tabular", "examples-images", "circuit"])
def test_rows_and_pictures_are_kept_only_if_asked_for(name, data, tmp_path):
    changes = {"data": ["mnist"], "options": {}, "wanted": {}, "epochs": {"mnist": 1}} if name == "examples-images" else {}
    for shown in (False, True):
        run(
            STUDIES[name],
            "toy",
            tmp_path / str(shown),
            data=str(data),
            changes=changes | {"show_data": shown},
            show_progress=False,
        )
        (result,) = json.loads((tmp_path / str(shown) / "results.json").read_text()).values()
        examples = result.get("examples", {"only": result}).values()
        assert [bool(example.get("values") or example.get("picture")) for example in examples] == [shown] * len(examples)
        page = (tmp_path / str(shown) / "README.md").read_text()
        if name != "examples-images":
            assert ("| value |" in page or "Sex = " in page) == shown


def test_pictures_that_we_drew_are_shown(data, tmp_path):
    run(STUDIES["examples-images"], "toy", tmp_path, data=str(data), show_progress=False)
    (result,) = json.loads((tmp_path / "results.json").read_text()).values()
    assert len(result["picture"]) == 3


def test_limited_methods_share_the_draws_of_the_others(data, tmp_path):
    """Fewer rows of one method change nothing for the others, and differences are taken on the rows of both."""
    both = {}
    for limit in (20, 10):
        run(STUDIES["infidelity-mlp"], "toy", tmp_path / str(limit), data=str(data), show_progress=False,
            changes={"limits": {"gradient_x_input": limit}, "sensitivity": False})  # fmt: skip
        (both[limit],) = json.loads((tmp_path / str(limit) / "results.json").read_text()).values()
    whole, part = both[20], both[10]
    assert (whole["limited"], part["limited"]) == ({}, {"gradient_x_input": 10})
    for metric in ("infidelity small", "structural_infidelity large"):
        assert part["methods"]["cafe c=0.5"][metric] == whole["methods"]["cafe c=0.5"][metric]
    assert part["methods"]["gradient_x_input"]["infidelity small"] != whole["methods"]["gradient_x_input"]["infidelity small"]
    assert "*: the first test rows only, 10 for Gradient x Input" in (tmp_path / "10" / "infidelity-mlp.md").read_text()


def test_a_method_that_refuses_a_network_has_no_number_there(data, tmp_path):
    changes = {"data": ["titanic", "titanic@authors"], "methods": ["gradient_x_input", "deeplift_rescale", "cafe c=0.5"]}
    report = run(STUDIES["infidelity-ft"], "toy", tmp_path, data=str(data), changes=changes, show_progress=False)
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["titanic@authors-42"]["refused"]) == ["deeplift_rescale"]
    assert not results["titanic-42"]["refused"]
    assert "deeplift_rescale" not in results["titanic@authors-42"]["methods"]
    assert "titanic@authors: without DeepLIFT Rescale, which refuse" in report.tables[0].note
    assert any("without DeepLIFT Rescale, see the networks" in finding.numbers for finding in report.findings)


def test_networks_at_another_rate_have_their_own_numbers_and_claims(data, tmp_path):
    report = run(STUDIES["infidelity-mlp"], "toy", tmp_path, data=str(data), models=tmp_path / "models", show_progress=False,
                 changes={"data": ["titanic", "titanic@5e-4"], "per_data": {"titanic@5e-4": {"epochs": 3}},
                          "methods": ["gradient_x_input", "cafe c=1", "cafe c=0.5"]})  # fmt: skip
    results = json.loads((tmp_path / "results.json").read_text())
    usual, higher = (results[f"{name}-42"]["methods"] for name in ("titanic", "titanic@5e-4"))
    assert usual["cafe c=0.5"]["infidelity small"] != higher["cafe c=0.5"]["infidelity small"]
    rates = [json.loads(_header(path)["config"])["recipe"]["lr"] for path in (tmp_path / "models").glob("*.safetensors")]
    assert sorted(rates) == [1e-4, 5e-4]
    assert [row[1] for row in report.tables[0].rows] == ["trained for 1 epochs", "trained for 3 epochs at a rate of 0.0005"]
    header, cells = report.tables[1].columns, report.tables[1].rows[-1]
    theirs = {column: cells[place + 1] for place, column in enumerate(header) if column.startswith("titanic")}
    assert theirs["titanic small"] == theirs["titanic@5e-4 small"] == 4.82
    claims = [finding.claim for finding in report.findings]
    assert "infidelity of CAFE 0.5 on all data sets: as low as that of every comparably fast method, or lower" in claims
    assert len([claim for claim in claims if claim.startswith("max-sensitivity")]) == 2
    at_rate = "all data sets, networks trained at a rate of 0.0005: as low as that of every comparably fast method, or lower"
    assert f"infidelity of CAFE 0.5 on {at_rate}" in claims


def _header(path):
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata()


@pytest.mark.parametrize(
    ("apart", "holds", "counts"),
    [
        (
            [(-1.0, 0.1), (-1.0, 0.9), (-1.0, 0.1), (1.0, 0.9)],
            True,
            "Lower in 3 of 4 columns, clearly in 2; clearly higher in 0.",
        ),
        ([(-1.0, 0.1), (1.0, 0.1), (1.0, 0.1), (1.0, 0.1)], False, "(one large, two small, two large)."),
        ([(-1.0, 0.9), (1.0, 0.9), (1.0, 0.9), (1.0, 0.9)], None, "clearly in 0; clearly higher in 0."),
        ([(-1.0, 0.1), (-1.0, 0.9), (-1.0, 0.9), (1.0, 0.1)], None, "clearly in 1; clearly higher in 1 (two large)."),
    ],
)
def test_whether_the_middle_constant_has_the_lower_infidelity(apart, holds, counts):
    columns = ["one small", "one large", "two small", "two large"]
    ours = {("infidelity", column, "cafe c=0.5 minus cafe c=1"): value for column, value in zip(columns, apart, strict=True)}
    (finding,) = infidelity_report._constants({"family": "ft", "data": ["one", "two"]}, ours)
    assert (finding.holds, finding.numbers[-len(counts) :]) == (holds, counts)
    assert list(infidelity_report._constants({"family": "ft", "data": ["one"]}, {})) == []


def test_brief_numbers_are_written_out():
    assert [brief(23.4, 1), brief(-134.0, 2, "+"), brief(0.0123, 1), brief(31.4, 2, "+")] == ["20", "-130", "0.01", "+31"]


@pytest.mark.parametrize(
    "name", ["titanic@450", "titanic@fast", "titanic@0", "titanic@-1e-3", "titanic@nan", "titanic@", "titanic@ 5e-4"]
)
def test_what_may_stand_after_the_at(name):
    with pytest.raises(ValueError, match=f"data {name}: after the @ may stand a learning rate between 0 and 1, or 'authors'"):
        Variant.of(name, "mlp")


def test_variants_that_would_change_nothing_are_refused():
    with pytest.raises(ValueError, match="compas@5e-4: OpenXAI's network is not trained by us"):
        Variant.of("compas@5e-4", "mlp")
    with pytest.raises(ValueError, match="titanic@authors: only FT-Transformers are built in two ways"):
        Variant.of("titanic@authors", "mlp")
    assert Variant.of("compas@5e-4", "ft").rate == 5e-4
    assert Variant.of("titanic@authors", "ft").as_authors
    shuffled = [name for name in TABLES if Variant.of(f"{name}@authors", "ft").shuffled]
    assert shuffled == ["compas", "heloc", "adult", "german"]
    assert not Variant.of("compas", "ft").shuffled


def test_a_rival_that_is_clearly_better_counts_also_beside_one_with_a_lower_mean():
    ours = {("infidelity", f"some {size}", key): (value, 0.1) for size in ("small", "large") for key, value in
            {"cafe c=0.5": 2.0, "smoothgrad": 1.8, "deeplift_rescale": 1.9}.items()}  # fmt: skip
    for size in ("small", "large"):
        ours["infidelity", f"some {size}", "smoothgrad minus cafe c=0.5"] = (-0.2, 0.15)
        ours["infidelity", f"some {size}", "deeplift_rescale minus cafe c=0.5"] = (-0.1, 0.01)
    holds, clear, numbers = infidelity_report._verdict("infidelity", "some", ["smoothgrad", "deeplift_rescale"], ours, {})
    assert not holds
    assert not clear
    assert "DeepLIFT Rescale" in numbers
    assert infidelity_report._verdict("infidelity", "some", ["smoothgrad"], ours, {})[0]


def test_structural_infidelity_is_that_of_the_metric(data):
    table = infidelity.load("compas", folder=str(data)).to(torch.float64)
    model = infidelity.openxai_mlp(infidelity.openxai_weights("compas", folder=str(data))).double().eval()
    methods = {key: method(key) for key in ("gradient_x_input", "cafe c=0.5")}
    x, options = table.x_test[:5], {"n_samples": 4, "seed": 3}
    disturb = {"small": metrics.TabularPerturbation.small(table.x_test, [list(c) for c in table.categories.values()])}
    found = infidelity._structural(methods, model, x, table, disturb, dict.fromkeys(methods, 5), 3, options)["small"]
    naive = metrics.structural_infidelity(
        methods, model, x, disturb["small"], n_units=3, feature_mask=table.feature_mask[0], **options
    )
    for key in methods:
        torch.testing.assert_close(found[key], naive[key])


def test_a_unit_that_is_drawn_twice_is_explained_once():
    """The scores of 12 draws among 4 units, each with noise of its own, are those of a loop over the draws."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2)).double()
    x, calls = torch.randn(5, 3, dtype=torch.float64), []
    plain, options = method("gradient_x_input"), {"n_samples": 4, "seed": 3}

    def counted(unit, rows, **arguments):
        calls.append(str(unit))
        return plain(unit, rows, **arguments)

    perturb = metrics.TabularPerturbation.small(x, [])
    found = metrics.structural_infidelity(counted, model, x, perturb, n_units=12, **options)
    assert len(calls) == len(set(calls)) <= 4
    units = metrics.random_units(model, x, 12, 3)
    assert set(calls) == set(map(str, units))
    for number, unit in enumerate(units):
        scores = plain(unit, x, target=0)
        naive = metrics.infidelity(unit, x, scores, perturb, target=0, n_samples=4, seed=3 + number)
        torch.testing.assert_close(found[:, number], naive, rtol=0, atol=0)


def test_prevalence_asks_the_networks_of_the_infidelity_studies(data, tmp_path):
    """The second study trains nothing, also for the demo of MIMIC-IV, which has epochs of its own."""
    names, options = ["titanic", "mimic"], {"data": str(data), "models": tmp_path / "models", "show_progress": False}
    shared = {"data": names, "epochs": 2, "demo_epochs": 3, "train_rows": None, "rows": 10}
    run(STUDIES["infidelity-mlp"], "toy", tmp_path / "one", changes=shared, **options)
    said = []
    both = {key: {"mlp": shared[key]} for key in ("epochs", "demo_epochs", "train_rows")}
    changes = {"data": names, "families": ["mlp"], **both}
    run(STUDIES["prevalence"], "toy", tmp_path / "two", changes=changes, say=said.append, **options)
    assert said[-1].startswith("prevalence: 0 networks trained, 2 found in")


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_prevalence_and_infidelity_have_the_same_recipes(preset):
    settings = STUDIES["prevalence"].presets[preset]
    for family in ("mlp", "ft"):
        theirs = STUDIES[f"infidelity-{family}"].presets[preset]
        assert settings["demo_epochs"][family] == theirs.get("demo_epochs", theirs["epochs"])
        for key in ("epochs", "train_rows"):
            assert settings[key][family] == theirs[key]


def test_ticks_come_from_tests_and_agree_with_the_paper(tmp_path):
    report = run(STUDIES["properties"], "toy", tmp_path, show_progress=False)
    differing = [finding for finding in report.findings if not finding.holds]
    assert not differing
    ticks = report.tables[0]
    assert len(ticks.columns) == 7
    assert len(ticks.rows) == 14
    assert not any("paper" in str(cell) for row in ticks.rows for cell in row[1:])


def test_a_killed_study_goes_on_to_the_same_results(tmp_path):
    line = [sys.executable, "-m", "cafexai", "study", "properties", "--preset", "toy", "--out", str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("parts/[a-z]*.json")) and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.wait()
    done = len(list((tmp_path / "killed").glob("parts/[a-z]*.json")))
    assert 0 < done < 14, "the study was to be stopped halfway"
    assert not (tmp_path / "killed" / "results.json").exists()
    run(STUDIES["properties"], "toy", tmp_path / "killed", show_progress=False)
    run(STUDIES["properties"], "toy", tmp_path / "whole", show_progress=False)
    for name in ("results.json", "findings.json", "README.md"):
        assert (tmp_path / "killed" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_finished_tasks_are_not_done_again(tmp_path):
    calls = []

    def tasks(settings, place):
        for number in range(3):

            def work(number=number):
                calls.append(number)
                if calls == [0, 1]:
                    raise KeyboardInterrupt
                return {"number": number}

            yield Task(f"task-{number}", work)

    def report(settings, results):
        rows = [[key, result["number"]] for key, result in results.items()]
        return Report([Table("numbers", "Numbers", ["task", "number"], rows)], [Finding("they are there", True, "3.")])

    study = Study("some", "something", "nothing", {"toy": {}}, {"toy": "0"}, tasks, report)
    with pytest.raises(KeyboardInterrupt):
        run(study, "toy", tmp_path, show_progress=False)
    run(study, "toy", tmp_path, show_progress=False)
    assert calls == [0, 1, 1, 2]
    assert json.loads((tmp_path / "results.json").read_text()) == {f"task-{n}": {"number": n} for n in range(3)}


def refused(monkeypatch, *arguments):
    """The message that the command ends with."""
    monkeypatch.setattr(sys, "argv", ["cafexai", "study", *map(str, arguments)])
    told = io.StringIO()
    with contextlib.redirect_stderr(told), pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code in (2, 3)
    assert told.getvalue().startswith("cafexai: ")
    assert told.getvalue().count("\n") == 1
    return told.getvalue()


def test_bad_arguments_end_in_one_message(monkeypatch, tmp_path, data):
    out = ("--out", tmp_path / "new")
    assert "unknown study. Allowed values: infidelity-mlp" in refused(monkeypatch, "nonsense", *out)
    assert "no preset 'huge', only toy, quick, full" in refused(monkeypatch, "circuit", "--preset", "huge", *out)
    toy = ("--preset", "toy", "--data", data, *out)
    assert "no setting 'row', only" in refused(monkeypatch, "circuit", *toy, "--set", "row=3")
    assert "give a setting as name=JSON" in refused(monkeypatch, "circuit", *toy, "--set", "rows=many")
    assert "unknown data set" in refused(monkeypatch, "circuit", *toy, "--set", 'data=["nonsense"]')
    again = ("--preset", "toy", "--data", data, "--out", tmp_path / "other")
    assert "there is no 'magic'" in refused(monkeypatch, "awareness", *again, "--set", 'methods=["magic"]')
    assert not (tmp_path / "new" / "results.json").exists()


def test_a_folder_with_other_settings_is_left_alone(monkeypatch, tmp_path):
    toy = STUDIES["properties"].presets["toy"]
    before = json.dumps({"study": "properties", "preset": "toy", "settings": {**toy, "models": 5}})
    (tmp_path / "config.json").write_text(before)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "missingness.json").write_text("{}")
    message = refused(monkeypatch, "properties", "--preset", "toy", "--out", tmp_path)
    assert "with other settings" in message
    assert "Give another folder" in message
    assert (tmp_path / "config.json").read_text() == before


def test_missing_data_and_a_wrong_call_on_stderr(tmp_path):
    done = command("examples-tabular", "--preset", "toy", "--out", tmp_path / "out", "--data", tmp_path / "nowhere")
    assert done.returncode != 0
    assert "titanic/titanic_train.csv is missing" in done.stderr
    assert "Put the file at" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_names_every_study_with_its_needs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cafexai", "study", "list"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    text = capsys.readouterr().out
    for study in STUDIES.values():
        assert f"{study.name}: {study.title}" in text
        assert study.needs in text
        assert set(study.presets) == set(study.minutes) == {"toy", "quick", "full"}


def test_tables_of_the_paper_are_known_methods():
    for table, methods in paper().items():
        if table in ("synthetic trained networks", "accuracies"):  # of the networks themselves
            continue
        assert set(methods) <= set(METHOD_TITLES), table


def test_a_part_that_is_no_result_is_named(tmp_path):
    one, nothing = lambda settings, place: [Task("a", dict)], lambda settings, results: Report([], [])
    study = Study("one", "", "", {"toy": {}}, {}, one, nothing)
    (tmp_path / "parts").mkdir()
    for text in ("{", "", "\x00"):
        (tmp_path / "parts" / "a.json").write_text(text)
        with pytest.raises(ValueError, match=r"parts/a\.json does not hold a result.*Remove it"):
            run(study, "toy", tmp_path, show_progress=False)
    (tmp_path / "parts" / "a.json").unlink()
    run(study, "toy", tmp_path, show_progress=False)
