"""Rows keep the names that a frame gives them."""

import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.explanation import Explanation


def explained(index, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 3))
    frame = pd.DataFrame({"age": torch.rand(len(index)).tolist(), "dose": torch.rand(len(index)).tolist()}, index=index)
    return CAFE(model, **options).explain(frame)


def test_a_label_is_a_row_and_an_integer_a_position():
    e = explained([7, 3, 0])
    assert e.row_names == ("7", "3", "0")
    assert e[0].row_names == ("7",)
    assert e["0"].output.item() == e[2].output.item()
    assert e[[2, 0]].row_names == ("0", "7")
    assert e[torch.tensor([False, True, True])].row_names == ("3", "0")
    assert e[-1].row_names == ("0",)
    assert e.position("3") == e.position(-2) == 1
    assert e.ledger("3") == e.ledger(1)
    assert e.ledger("3").startswith("3: What moved")
    assert e.top("3", 1).equals(e.top(1, 1))
    assert e.values("3") == e.values(1)
    assert e.target_name("3") == e.target_name(1)


@pytest.mark.parametrize("index", [range(3), [0, 1, 2]])
def test_counted_rows_have_no_names(index):
    e = explained(index)
    assert e.row_names is None
    assert e.ledger(0).startswith("What moved")
    assert "name" not in e.to_frame()
    with pytest.raises(KeyError, match="the rows have no names"):
        e["0"]


def test_names_of_dates_and_of_several_levels():
    assert explained(pd.date_range("2026-01-30", periods=2)).row_names == ("2026-01-30", "2026-01-31")
    assert explained(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])).row_names == ("a, 1", "b, 2")


def test_names_that_do_not_name_one_row_are_refused():
    e = explained(["a", "b", "a"])
    with pytest.raises(KeyError, match="2 rows have this name, at the positions 0, 2"):
        e["a"]
    with pytest.raises(KeyError, match=r"no row has this name\. Names: a, b, a"):
        e.ledger("c")
    assert e["b"].row_names == ("b",)


def test_names_go_into_frames_pictures_reports_and_files(tmp_path):
    e = explained(["wine-001", "wine-002"])
    frame = e.to_frame()
    assert frame["name"].tolist() == ["wine-001"] * 3 + ["wine-002"] * 3
    assert frame["row"].tolist() == [0] * 3 + [1] * 3
    assert e.plot("wine-002").get_suptitle().startswith("wine-002: ")
    page = e.report(tmp_path / "report.html").read_text()
    assert "<b>wine-002</b>" in page
    assert "wine-002" in e._repr_html_()
    e.save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors").row_names == e.row_names


def test_frames_name_the_output_of_each_row():
    e = explained(["a", "b", "c"], class_names=["no", "maybe", "yes"])
    known = [e.class_names[place] for (place,) in e.target.tolist()]
    assert e.to_frame().groupby("name")["target"].first().tolist() == known
    assert explained(["a"]).to_frame()["target"].unique().tolist() == explained(["a"]).target[0].tolist()


def test_several_names_are_rows_in_their_order():
    e = explained(["a", "b", "c"])
    assert e[["c", "a"]].row_names == ("c", "a")
    assert torch.equal(e[["c", "a"]].combined, e[[2, 0]].combined)
    with pytest.raises(KeyError, match="no row has this name"):
        e[["a", "d"]]
