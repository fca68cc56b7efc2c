"""The command line as a new user meets it, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pandas as pd
import pytest
import torch

import cafexai
from cafexai import CAFE
from cafexai.cli.app import app
from cafexai.cli.errors import CODES, run
from command_files import network, process, write_all

NET = ("shop:net", "people.csv", "--weights", "net.safetensors")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def here(shop, monkeypatch, capsys):
    """Commands in this process, as ``main`` runs them: code, standard output, standard error."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.set_default_dtype(torch.float32)

    def command(*words):
        code = run(app, list(map(str, words)))
        return (code, *capsys.readouterr())

    return command


def explained():
    table = pd.DataFrame({"age": [45, 31, 62, 28, 51], "income": [5.2, 3.1, 4.0, 2.5, 6.1], "children": [2, 0, 3, 1, 2]})
    return CAFE(network()).explain(table)


def test_the_terminal_shows_the_ledgers_of_python(shop):
    code, out, error = process(shop, "explain", *NET)
    assert (code, error) == (0, "")
    assert all(explained().ledger(row) in out for row in range(3))
    assert explained().ledger(3) not in out
    assert "2 more rows: --rows chooses others, --out scores.csv writes all." in out


def test_reasons_are_those_of_python(here, tmp_path):
    wanted = explained().reasons_frame(2, "up")
    code, out, _ = here("explain", *NET, "--reasons", 2, "--direction", "up")
    assert code == 0
    assert all(sentence in out for sentence in explained().reasons(0, 2, "up"))
    assert "2 more rows: --rows chooses others, --out reasons.csv writes all." in out
    assert here("explain", *NET, "--reasons", 2, "--direction", "up", "--out", tmp_path / "reasons.csv")[0] == 0
    assert pd.read_csv(tmp_path / "reasons.csv")["reason"].tolist() == wanted["reason"].tolist()
    assert here("explain", *NET, "--reasons", 2, "--out", tmp_path / "reasons.html")[0] == 2
    code, _, error = here("explain", *NET, "--reasons", 2, "--direction", "left")
    assert code == 2
    assert "Allowed values: down, up" in error


def test_files_hold_the_numbers_of_python(shop, tmp_path):
    expected = explained()
    code, out, error = process(shop, "explain", *NET, "--rows", "1:4", "--out", tmp_path / "scores.csv")
    assert (code, error) == (0, "")
    assert "3 rows of people.csv explained" in out
    table = pd.read_csv(tmp_path / "scores.csv")
    assert sorted(set(table["row"])) == [1, 2, 3]  # as in the file
    of_row = table[(table["row"] == 2) & (table["feature"] != "(bias)")]
    assert of_row["positive"].tolist() == pytest.approx(expected.positive[2].tolist(), rel=1e-5)
    assert process(shop, "explain", *NET, "--out", tmp_path / "scores.json")[0] == 0
    found = json.loads((tmp_path / "scores.json").read_text())
    row = found["rows"][4]
    assert row["output"] == pytest.approx(expected.output[4].item(), rel=1e-5)
    total = row["baseline_output"] + row["bias"]["net"] + sum(feature["net"] for feature in row["features"])
    assert total == pytest.approx(row["output"], abs=1e-4)
    assert [feature["value"] for feature in row["features"]] == pytest.approx([51, 6.1, 2])
    assert sorted(os.listdir(tmp_path)) == ["scores.csv", "scores.json"]


# Every mistake: the words, the code, and what the one line must say.
MISTAKES = {
    "wrong path": ("explain shop:net nobody.csv", 3, "nobody.csv: there is no such file"),
    "missing weights": ("explain shop:net people.csv --weights no.pt", 4, "no.pt: there is no such file"),
    "corrupt weights": ("explain shop:net people.csv --weights corrupt.safetensors", 4, "no weights can be read from it"),
    "corrupt torch weights": ("explain shop:net people.csv --weights corrupt.pt", 4, "no weights can be read from it"),
    "other weights": (
        "explain shop:net people.csv --weights other.safetensors",
        4,
        "0.weight is (4, 3) in the file and (8, 3)",
    ),
    "unsupported": ("explain shop:Odd people.csv", 4, "special.bessel_j0"),
    "no such factory": ("explain shop:Tow people.csv", 4, "did you mean 'Two'?"),
    "no such module": ("explain shp:net people.csv", 4, "there is no module 'shp'"),
    "faulty module": ("explain faulty:net people.csv", 4, "ZeroDivisionError: division by zero (faulty.py, line 2)"),
    "faulty factory": ("explain shop:broken people.csv", 4, "the disk is on fire"),
    "factory with arguments": ("explain shop:sized people.csv", 4, "this one needs width"),
    "no model": ("explain shop:NUMBER people.csv", 4, "neither a model nor something that makes one"),
    "untrusted": ("explain whole.pt people.csv", 4, "add --trust"),
    "weights as model": ("explain net.pt people.csv", 4, "--weights net.pt"),
    "unknown model": ("explain people.csv people.csv", 4, "unknown kind of model"),
    "onnx": ("explain people.onnx people.csv", 4, "there is no such file"),
    "mixed types": ("explain shop:net mixed.csv", 3, "the columns 'city' hold no numbers"),
    "missing values": ("explain shop:net gaps.csv", 3, "1 value is missing, the first in row 1, column 'income'"),
    "missing column": ("explain shop:net people.csv --columns age,incme,children", 3, "did you mean 'income'?"),
    "too few columns": ("explain shop:net short.csv", 3, "takes 3 columns, not 2"),
    "too few inputs": ("explain shop:Two people.csv", 4, "missing 1 required positional argument: 'a'"),
    "no rows": ("explain shop:net norows.csv", 3, "it holds no rows"),
    "empty file": ("explain shop:net empty.csv", 3, "it is empty"),
    "no header": ("explain shop:net headless.csv", 3, "names of the columns"),
    "names twice": ("explain shop:net twice.csv", 3, "more than one column is called 'age'"),
    "ragged": ("explain shop:net ragged.csv", 3, "line 3"),
    "other encoding": ("explain shop:net latin.csv", 3, "--encoding cp1252"),
    "objects": ("explain shop:net objects.npz", 3, "no arrays of numbers"),
    "unknown data": ("explain shop:net shop.py", 3, "unknown kind of data"),
    "no tokenizer": ("explain shop:net words.txt", 2, "--tokenizer FOLDER"),
    "wrong target": ("explain shop:net people.csv --target 7", 2, "--target: index 7 is out of range"),
    "odd target": ("explain shop:net people.csv --target good", 2, "--target good"),
    "wrong rows": ("explain shop:net people.csv --rows 9", 2, "the data have 5, 0 to 4"),
    "odd rows": ("explain shop:net people.csv --rows first", 2, "give rows as 0:100"),
    "wrong baseline": (
        "explain shop:net people.csv --baseline average",
        2,
        "mode, background nor row:N",
    ),
    "wrong baseline row": ("explain shop:net people.csv --baseline row:7", 2, "row:0 to row:4"),
    "wrong c": ("explain shop:net people.csv --c 2", 2, "2 is not between 0 and 1"),
    "wrong netting": ("explain shop:net people.csv --netting paths", 2, "--netting 'paths'"),
    "wrong ending": ("explain shop:net people.csv --out scores.xls", 2, ".csv, .parquet"),
    "no folder": ("explain shop:net people.csv --out nowhere/scores.csv", 5, "there is no folder"),
    "a folder": ("explain shop:net people.csv --out folder.csv", 5, "no regular file"),
    "unknown option": ("explain shop:net people.csv --tagret 1", 2, "--target"),
    "no data": ("explain shop:net", 2, "Missing argument 'DATA'. See cafexai explain --help."),
    "unknown command": ("explan", 2, "Did you mean 'explain'"),
    "unknown study": ("study nothing", 2, "unknown study"),
    "unknown method": ("compare shop:net people.csv --methods magic", 2, "unknown method 'magic'"),
}
IN_PROCESSES = ("wrong path", "unsupported")  # each costs seconds


def check(code, out, error, expected, said):
    assert code == expected, error
    assert out == ""
    assert said in error
    assert error.startswith("cafexai: ")
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    assert error.rstrip().endswith((".", "?", ")"))


@pytest.mark.parametrize("mistake", IN_PROCESSES)
def test_mistakes_end_in_one_line_and_a_code(mistake, shop):
    words, code, said = MISTAKES[mistake]
    check(*process(shop, *words.split()), code, said)


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name not in IN_PROCESSES])
def test_the_other_mistakes_in_this_process(mistake, shop, here):
    words, code, said = MISTAKES[mistake]
    (shop / "folder.csv").mkdir(exist_ok=True)
    check(*here(*words.split()), code, said)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(shop, tmp_path):
    tmp_path.chmod(0o500)
    try:
        check(*process(shop, "explain", *NET, "--out", tmp_path / "scores.csv"), 5, "cannot be written to")
    finally:
        tmp_path.chmod(0o700)


def test_a_place_that_cannot_be_written_to(shop):
    """A folder in which nobody can make files, root included."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("there is no such folder here")
    check(*process(shop, "explain", *NET, "--out", "/proc/self/scores.csv"), 5, "cannot be written to")


def test_debug_shows_where_an_error_comes_from(shop):
    code, _, error = process(shop, "explain", "shop:broken", "people.csv", "--debug")
    assert code == 4
    assert "Traceback" in error
    assert "in broken" in error


@pytest.mark.parametrize(
    ("data", "names"),
    [("single.csv", ["age", "income", "children"]), ("letters.csv", ["возраст", "年収", "παιδιά"])],
    ids=["one row", "another alphabet"],
)
def test_small_and_foreign_tables(data, names, shop):
    code, out, error = process(shop, "explain", "shop:net", data, "--json", PYTHONIOENCODING="utf-8")
    assert (code, error) == (0, "")
    rows = json.loads(out)["rows"]
    assert [feature["name"] for feature in rows[0]["features"]] == names


def test_one_column(here):
    code, out, _ = here("explain", "shop:one", "column.csv", "--rows=-1")
    assert code == 0
    assert "Row 4" in out


def test_an_operation_without_a_rule_is_found_beforehand(here):
    code, out, error = here("supported", "shop:Odd", "people.csv", "--json")
    assert (code, error) == (4, "")
    assert json.loads(out)["supported"] is False
    code, out, _ = here("supported", *NET)
    assert code == 0
    assert "linear (2x)" in out


def test_methods_are_compared_and_audited(here, tmp_path):
    code, out, error = here("compare", *NET, "--methods", "cafe,integrated_gradients", "--metrics", "complexity")
    assert (code, error) == (0, "")
    assert "| integrated_gradients |" in out
    code, out, _ = here("audit", *NET, "--baseline", "mean")
    assert code == 0
    assert "cafe_published reports every conflict" in out
    code, out, _ = here("audit", *NET, "--method", "gradient_x_input", "--out", tmp_path / "audit.csv")
    assert code == 0
    assert pd.read_csv(tmp_path / "audit.csv")["conflicts"].sum() > 0


def test_the_demo_shows_commands_that_work(tmp_path):
    code, out, error = process(tmp_path, "demo")
    assert (code, error) == (0, "")
    commands = [line.split()[1:] for line in out.splitlines() if line.startswith("  cafexai ")]
    assert [words[0] for words in commands] == ["explain", "explain", "report"]
    for words in commands:
        assert process(tmp_path / "cafexai-demo", *words)[0] == 0
    scores = pd.read_csv(tmp_path / "cafexai-demo" / "scores.csv")
    assert len(set(scores["row"])) == 171
    assert "Row 170" in (tmp_path / "cafexai-demo" / "report.html").read_text(encoding="utf-8")


def test_the_version(shop):
    assert process(shop, "--version") == (0, f"cafexai {cafexai.__version__}\n", "")


def test_help_names_the_exit_codes_and_does_not_wait_for_torch(shop):
    code, out, _ = process(shop, "--help")
    assert code == 0
    assert "4    model: not there" in out
    look = "import sys; sys.argv = ['cafexai', '--help']; from cafexai.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    look += "assert not {'torch', 'numpy', 'pandas', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", look], check=True, capture_output=True)


def test_help_comes_at_once():
    """Beyond what Python itself takes; seconds of the processor, which other work does not lengthen."""
    resource = pytest.importorskip("resource")

    def seconds(*words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    own, python = (min(seconds(*words) for _ in range(5)) for words in (("-m", "cafexai", "--help"), ("-c", "pass")))
    assert own - python < 0.3


def test_progress_is_for_terminals_and_after_two_seconds(shop):
    """In a pseudo-terminal, with a model that takes its time."""
    pty = pytest.importorskip("pty")
    (shop / "slow.py").write_text("import time, shop\ndef net():\n    time.sleep(4)\n    return shop.net()\n")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "cafexai", "explain", "slow:net", "people.csv", "--rows", "0"]
    done = subprocess.run(words, cwd=shop, stdout=subprocess.PIPE, stderr=theirs, check=True, env={**os.environ})
    os.close(theirs)
    told = os.read(ours, 10000).decode()
    os.close(ours)
    assert "loading slow:net, 2 s" in told
    assert "loading slow:net, 0 s" not in told
    assert b"loading" not in done.stdout
    assert process(shop, "explain", "slow:net", "people.csv", "--rows", "0")[2] == ""


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    from cafexai.cli.output import write_out

    place = tmp_path / "scores.csv"
    place.write_text("old")

    def half(part):
        part.write_text("half")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_out(place, half)
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]
    write_out(place, lambda part: part.write_text("new"))
    assert place.read_text() == "new"


def test_rows_as_they_are_typed():
    from cafexai.cli import parsing as words

    assert words.rows("0:3", 10) == [0, 1, 2]
    assert words.rows("3,5,-1", 10) == [3, 5, 9]
    assert words.rows("::4,1", 10) == [0, 4, 8, 1]
    assert words.rows(None, 3) == [0, 1, 2]
    for text in ("", "a", "10", "5:5", "1:2:0", "1.5"):
        with pytest.raises(ValueError, match="--rows"):
            words.rows(text, 10)


def test_targets_and_several_c(here):
    code, out, _ = here("explain", *NET, "--rows", "0", "--target", "all", "--c", "0,1", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [(row["c"], row["target"]) for row in rows] == [(0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1)]
    expected = CAFE(network(), c=1.0).explain(torch.tensor([[45.0, 5.2, 2.0]]), target=1, conflict="net")
    assert rows[3]["conflict"] == pytest.approx(expected.conflict.item(), rel=1e-5)


def test_options_without_a_variant_say_what_changed(here):
    for options, noted in (
        ("--netting path", "--netting path now starts"),
        ("--norm-mean linear --flows peak", "--flows peak --norm-mean linear now starts"),
        ("--netting path --variant default", None),
        ("--netting path --variant published", None),
        ("--norms open", None),  # refused before
        ("", None),
    ):
        code, _, error = here("explain", *NET, "--rows", "0", *options.split())
        assert code == 0
        assert error.count("now starts from the default variant") == (noted is not None)
        assert noted is None or noted in error
    assert "add --variant published" in here("explain", *NET, "--biases", "scores")[2]


def test_options_of_the_variant_are_those_of_python():
    from cafexai._core.variant import ALLOWED
    from cafexai.cli import options

    helps = get_type_hints(options.How, include_extras=True)
    assert set(ALLOWED) == set(helps) - {"c", "variant", "allow_nan"}
    for name, values in ALLOWED.items():
        (shown,) = helps[name].__metadata__
        assert [value for value in values if not re.search(rf"\b{value}\b", shown.help)] == []


def test_the_document_shows_what_commands_say(tmp_path, monkeypatch, capsys):
    """Every command of docs/commands.md, in its order; numbers may differ, words may not."""
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = [part for block in blocks for part in block.split("$ cafexai ")[1:]]
    assert len(shown) == 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.set_default_dtype(torch.float32)
    for part in shown:
        words, _, expected = part.partition("\n")
        expected = re.sub(r"(slowest stage:) \w+", r"\1", expected)  # that is measured, too
        code = run(app, shlex.split(words))
        said = "".join(capsys.readouterr())
        assert code == (3 if "tumors" in words else 0), said
        assert set(re.findall(r"[^\W\d]{2,}", expected)) <= set(re.findall(r"[^\W\d]{2,}", said)), words
        if words == "demo":
            monkeypatch.chdir(tmp_path / "cafexai-demo")
    for code, meaning in CODES.items():
        assert f"| {code} | {meaning} |" in text
