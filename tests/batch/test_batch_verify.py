"""Results that change after they were written: found by resume and by ``cafexai batch --verify``."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pyarrow.parquet as pq

from batch_files import hidden, network, read, rows, write
from cafexai import CAFE
from cafexai.batch import score, verify
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.loading.file_errors import DataProblem, OutputProblem

PARTS = {"keep": ["id"], "rows_per_part": 100, "workers": 0}


@pytest.fixture
def out(tmp_path):
    x = rows(400)
    x[150] = np.nan  # a refused row: a file of its own
    write(tmp_path / "in.parquet", x)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", **PARTS)
    return tmp_path / "out"


def flip(path, chance):
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def test_every_flipped_bit_is_found_by_verify_and_mended_by_resume(out):
    chance, whole = (
        random.Random(0),
        {path: path.read_bytes() for path in [*out.rglob("*.parquet"), *hidden(out).rglob("*.refused")]},
    )
    assert len(whole) == 5
    assert verify(out).problems == ()
    for _ in range(60):
        path = chance.choice(sorted(whole))
        flip(path, chance)
        assert [problem for problem in verify(out).problems if path.name in problem]
        with pytest.warns(UserWarning, match="changed since it was written"):
            assert score(CAFE(network()), out.parent / "in.parquet", out, **PARTS).scored_now == 100
        assert path.read_bytes() == whole[path]


def test_every_flipped_bit_of_the_manifest_is_found(out):
    chance, manifest, before = random.Random(1), hidden(out) / "manifest.jsonl", read(out)
    text = manifest.read_bytes()
    for _ in range(60):
        flip(manifest, chance)
        assert verify(out).problems
        manifest.write_bytes(text)
    lines = text.splitlines(keepends=True)
    manifest.write_bytes(lines[0] + lines[1].replace(b"1", b"2", 1) + b"".join(lines[2:]))
    assert score(CAFE(network()), out.parent / "in.parquet", out, **PARTS).scored_now == 100
    assert read(out).equals(before)
    manifest.write_bytes(text[5:])
    with pytest.raises(OutputProblem, match=r"the first line of its manifest is damaged.*Delete the folder"):
        score(CAFE(network()), out.parent / "in.parquet", out, **PARTS)


def test_pages_have_checksums(out):
    part = sorted(out.glob("part-*.parquet"))[0]
    whole = part.read_bytes()
    found = 0
    for place in range(8, 2000, 97):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            pq.ParquetFile(part, page_checksum_verification=True).read()
        except (OSError, ValueError) as error:
            found += "CRC checksum" in str(error)
    assert found > 10


def test_missing_and_unknown_files_are_told(out):
    sorted(out.glob("part-*.parquet"))[1].rename(out / "part-00009-000000000000.parquet")
    (hidden(out) / "refused" / "part-00000-000000000100.refused").unlink()
    found = verify(out)
    assert not [problem for problem in found.problems if "000000000200" in problem]
    assert any("part-00000-000000000100.parquet: missing" in problem for problem in found.problems)
    assert any("part-00009-000000000000.parquet: no line of the manifest knows it" in p for p in found.problems)
    assert found.finished
    with pytest.raises(DataProblem, match="there is no manifest"):
        verify(out.parent / "nowhere")


def test_the_command_verifies(out, capsys):
    assert run(app, ["batch", "--verify", str(out)]) == 0
    assert "4 parts, 399 rows" in capsys.readouterr().out
    flip(sorted(out.glob("part-*.parquet"))[2], random.Random(0))
    assert run(app, ["batch", "--verify", str(out)]) == 3
    assert "part-00000-000000000200.parquet: it has changed since it was written" in capsys.readouterr().err


def test_refused_rows_are_in_the_manifest(out):
    lines = [json.loads(line) for line in (hidden(out) / "manifest.jsonl").read_text().splitlines()]
    (unit,) = [line for line in lines if line.get("refused")]
    sizes = {file["name"]: file["size"] for file in unit["files"]}
    name = f"part-{unit['unit']}.refused"
    assert sizes[f"_cafexai/refused/{name}"] == (hidden(out) / "refused" / name).stat().st_size


def test_files_of_others_among_the_results_are_told(out):
    (out / "copy.parquet").write_bytes(sorted(out.glob("part-*.parquet"))[0].read_bytes())
    (out / "_notes.txt").write_text("readers skip it")
    assert verify(out).problems == ("copy.parquet: no line of the manifest knows it",)
    with pytest.warns(UserWarning, match=r"copy.parquet: not of this run, but readers of the folder read it"):
        score(CAFE(network()), out.parent / "in.parquet", out, **PARTS)


def test_a_finished_run_that_goes_on_is_not_finished_meanwhile(out, monkeypatch):
    assert verify(out).finished
    sorted(out.glob("part-*.parquet"))[2].unlink()

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cafexai.batch._run._Loop._note", stopped)
        with pytest.raises(KeyboardInterrupt):
            score(CAFE(network()), out.parent / "in.parquet", out, **PARTS)
    found = verify(out)
    assert not found.finished
    assert not (hidden(out) / "summary.json").exists()
    assert score(CAFE(network()), out.parent / "in.parquet", out, **PARTS).rows == 399
    assert verify(out).finished


def test_rows_that_get_lost_inside_are_an_error(out, monkeypatch):
    from cafexai.batch import _scorer
    from cafexai.errors import InternalError

    whole = _scorer.Scorer.parts
    monkeypatch.setattr(_scorer.Scorer, "parts", lambda self, table, *rest: whole(self, table.slice(1), *rest))
    with pytest.raises(InternalError, match=r"of 100 rows of unit 00000-000000000000, 99 were scored and 0 refused.*report it"):
        score(CAFE(network()), out.parent / "in.parquet", out.parent / "other", **PARTS)


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"[]\nnull\n"])
def test_parts_whose_manifest_is_gone_are_not_mixed_with_others(out, text):
    (hidden(out) / "manifest.jsonl").write_bytes(text)
    with pytest.raises(OutputProblem, match="the first line of its manifest is damaged or gone"):
        score(CAFE(network(1)), out.parent / "in.parquet", out, **PARTS)
    if text:
        assert verify(out).problems


def test_results_inside_of_other_results_are_refused(out):
    with pytest.raises(OutputProblem, match=r"inside of other results, .*out, whose readers would read it"):
        score(CAFE(network()), out.parent / "in.parquet", out / "more", **PARTS)
    same = out.parent / "elsewhere" / ".." / "out"
    assert score(CAFE(network()), out.parent / "in.parquet", same, **PARTS).scored_now == 0
