"""Schemas: columns, categories, one-hot blocks and several inputs of plain models."""

import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Column, Explanation, Schema

torch.manual_seed(0)
FRAME = pd.DataFrame(
    {
        "age": [45.0, 31.0, 60.0, 22.0],
        "city": ["Rome", "Oslo", "Łódź", "Oslo"],
        "married": [True, False, True, True],
    }
)
CITIES = ("Oslo", "Rome", "Łódź")
BLOCKS = Schema.from_frame(FRAME, one_hot=True)
SIDES = Schema.from_frame(FRAME, inputs={"numbers": ["age"], "codes": ["city", "married"]}, classes=["no", "yes"])


def chain(width=6, outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.code, self.net = nn.Embedding(3, 2), nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, numbers, codes):
        return self.net(torch.cat([numbers, self.code(codes).flatten(1)], 1))


def test_a_schema_of_a_frame():
    assert BLOCKS.columns == (
        Column("age"),
        Column("city", "one-hot", CITIES),
        Column("married", "one-hot", ("False", "True")),
    )
    assert SIDES.inputs == ("numbers", "codes")
    assert [c.kind for c in SIDES.columns] == ["number", "category", "category"]
    rooms = pd.DataFrame({"rooms": [10, 2, 2]})
    assert Schema.from_frame(rooms, categories=["rooms"]).columns[0].labels == ("2", "10")
    assert Schema.from_frame(rooms, categories=["rooms"]).encode(rooms)[0].tolist() == [[1], [0], [0]]
    ordered = pd.DataFrame({"size": pd.Categorical(["S", "L"], categories=["S", "M", "L"])})
    assert Schema.from_frame(ordered).columns[0].labels == ("S", "M", "L")
    assert Schema.from_frame(pl.DataFrame(FRAME.to_dict("list"))).columns == Schema.from_frame(FRAME).columns


@pytest.mark.parametrize(
    "make", [lambda frame: frame, lambda frame: pl.DataFrame(frame.to_dict("list"))], ids=["pandas", "polars"]
)
def test_frames_are_encoded(make):
    (x,) = BLOCKS.encode(make(FRAME))
    assert x.tolist() == [[45, 0, 1, 0, 0, 1], [31, 1, 0, 0, 1, 0], [60, 0, 0, 1, 0, 1], [22, 1, 0, 0, 0, 1]]
    numbers, codes = SIDES.encode(make(FRAME))
    assert numbers.dtype.kind == "f"
    assert codes.tolist() == [[1, 1], [0, 0], [2, 1], [0, 1]]
    assert codes.dtype.kind == "i"


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_blocks_are_one_feature_with_their_category(netting):
    cafe = CAFE(chain(), variant="published", netting=netting, schema=BLOCKS)
    e = cafe.explain(FRAME)
    assert e.names() == ("age", "city", "married")
    assert e.values(2) == [60.0, "Łódź", "True"]
    (x,) = map(torch.tensor, BLOCKS.encode(FRAME))
    twin = CAFE(chain(), variant="published", netting=netting).explain(x, feature_groups=torch.tensor([0, 1, 1, 1, 2, 2]))
    for name in ("positive", "negative", "combined", "output"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name))
    tensors = cafe.explain(x)
    assert tensors.values(2) == e.values(2)
    assert torch.equal(tensors.positive, e.positive)
    assert cafe.attribute(FRAME).shape == (4, 6)  # as the model takes them
    assert cafe.explain(FRAME, feature_names=["a", "b", "c"]).names() == ("a", "b", "c")
    assert cafe.explain(FRAME, feature_names=["a", "b", "c"]).values(2) == e.values(2)
    with pytest.raises(ValueError, match=r"explain\(..., feature_names=...\): 2 names for the columns 'age', 'city'"):
        cafe.explain(FRAME, feature_names=["a", "b"])


def test_blocks_that_hold_no_single_category():
    x = torch.tensor([[1.0, 0, 0, 0, 1, 0], [1.0, 1, 1, 0, 0, 1], [1.0, 0.5, 0, 0, 0, 1]], dtype=torch.float64)
    e = CAFE(chain(), schema=BLOCKS).explain(x)
    assert [e.values(row)[1] for row in range(3)] == ["(none)", "(several)", "(several)"]


def test_several_inputs_have_names_words_and_classes(tmp_path):
    model = TwoInputs()
    cafe = CAFE(model, schema=SIDES, probability="softmax", background=FRAME)
    assert any("background" in note for note in cafe.explain(FRAME, target="yes").notes)  # filled in for schemas
    e = cafe.explain(FRAME, "zero", "yes")
    numbers, codes = SIDES.encode(FRAME)
    plain = CAFE(model).explain((torch.tensor(numbers).float(), torch.tensor(codes)), target=1)
    torch.testing.assert_close(e.positive[1], plain.positive[1])
    assert e.names() == ("age", "city", "married")
    assert e.values(0) == [45.0, "Rome", "True"]
    torch.testing.assert_close(e.probability, model(torch.tensor(numbers).float(), torch.tensor(codes)).softmax(1)[:, 1])
    by_name = cafe.explain({"codes": codes, "numbers": numbers}, "zero", 1)
    assert torch.equal(by_name.combined[0], e.combined[0])
    frame = e.to_frame()
    assert frame[frame.feature == "city"].value.tolist() == FRAME.city.tolist()
    shap = e.to_shap()
    assert shap.values.shape == (4, 3)
    assert shap.display_data[2].tolist() == [60.0, "Łódź", "True"]
    e.save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors")[3].values() == [22.0, "Oslo", "True"]
    flat = CAFE(model).explain((torch.tensor(numbers).float(), torch.tensor(codes)), target=1, feature_names=["a", "b", "c"])
    assert flat.names() == ("a", "b", "c")


class _Two(nn.Module):
    def forward(self, numbers, codes, weight=1.0):
        return numbers.sum(1, keepdim=True) * weight + codes.sum()


def test_a_schema_of_one_input_for_a_model_of_two_is_refused_with_what_to_do():
    frame = pd.DataFrame({"age": [20.0, 30.0], "dose": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"takes 2 inputs, numbers, codes,.*inputs=\{'numbers': \[\.\.\.\], 'codes'"):
        CAFE(_Two(), schema=Schema.from_frame(frame)).explain(frame)
    further = CAFE(_Two(), schema=Schema.from_frame(frame)).explain(frame, additional_forward_args=torch.zeros(2, 1))
    torch.testing.assert_close(further.combined, torch.tensor(frame.to_numpy()).to(further.combined))


def test_baselines_by_columns():
    (x,) = BLOCKS.encode(FRAME)
    cafe = CAFE(chain(), schema=BLOCKS, background=FRAME)
    row = {"age": 31.0, "city": "Oslo", "married": False}
    torch.testing.assert_close(cafe.explain(row).combined, cafe.explain(FRAME[1:2]).combined)  # one row by name
    for form in (row, pd.Series(row), pd.DataFrame([row]), x[1], torch.tensor(x[1:2])):
        e = cafe.explain(FRAME, baselines=form)
        assert e.baselines[2].tolist() == [31, 1, 0, 0, 1, 0]
        assert (e.combined[1] == 0).all()
    assert cafe.explain(FRAME, baselines="mean").baselines[0].tolist() == [39.5, 1, 0, 0, 0, 1]
    assert cafe.explain(FRAME, baselines="median").baselines[0, 0] == 31
    two = CAFE(TwoInputs(), schema=SIDES, background=FRAME).explain(FRAME, baselines="mode", target=0)
    assert two.baselines[1][0].tolist() == [0, 1]
    refined = cafe.explain(FRAME, refine=20)
    assert refined.refinement.correction.shape == (4, 3)


def test_rows_that_cannot_be_encoded_are_named():
    bad = pd.DataFrame(
        {
            "age": [45.0, None, "old", float("inf")],
            "city": ["Rome", "Oslo", "Paris", None],
            "married": [True, False, True, True],
        }
    )
    reasons = BLOCKS.check(bad)
    assert list(reasons) == [1, 2, 3]
    assert reasons[1] == "'age' is missing"
    assert "'age' is 'old', which is no number; 'city' is 'Paris', which is none of 'Oslo', 'Rome', 'Łódź'" in reasons[2]
    assert "not finite" in reasons[3]
    assert "'city' is missing" in reasons[3]
    assert BLOCKS.check(FRAME) == {}
    with pytest.raises(ValueError, match=r"explain\(frame\): row 1, column 'age' is missing \(3 such rows; schema.check"):
        CAFE(chain(), schema=BLOCKS).explain(bad)
    with pytest.raises(ValueError, match="lacks the columns 'city'; it has 'age', 'married'"):
        BLOCKS.check(FRAME[["age", "married"]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schema(()), "at least one"),
        (lambda: Schema((Column("a"), Column("a"))), "more than one column is called 'a'"),
        (lambda: Schema((Column("a", input="x"), Column("b"), Column("c", input="x"))), "stand together"),
        (lambda: Schema((Column("a"),), probability="odds"), "softmax"),
        (lambda: Column("a", "word"), "Allowed values: 'number', 'category', 'one-hot'"),
        (lambda: Column("a", "category"), "give labels"),
        (lambda: Column("a", labels=("x",)), "a number has no labels"),
        (lambda: Column("a", "category", ("x", "x")), "more than one label is called 'x'"),
        (lambda: Column(""), "is a text"),
        (lambda: Schema.from_frame(FRAME, inputs={"x": ["height"]}), "no column 'height'"),
        (lambda: CAFE(chain(), schema="a.toml"), "give a cafexai.Schema"),
        (lambda: CAFE(chain(), schema=BLOCKS, feature_names=["a"]), "Give one of the two"),
        (lambda: CAFE(chain(), schema=BLOCKS).explain(torch.zeros(2, 5).double()), "the rows have 5 number.*describes 6"),
        (
            lambda: CAFE(TwoInputs(), schema=SIDES).explain((torch.zeros(2, 1), torch.tensor([[0, 1], [0, 2]]))),
            "row 1 has the code 2",
        ),
        (lambda: CAFE(TwoInputs(), schema=SIDES).explain({"numbers": torch.zeros(2, 1)}), "not those of the schema"),
        (lambda: Schema.from_frame(pd.DataFrame({"a": [None, None]}, dtype=object)), "'a' holds nothing"),
    ],
)
def test_what_is_no_schema_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
columns = st.lists(
    st.builds(
        lambda name, labels, hot: Column(name, "number" if not labels else "one-hot" if hot else "category", tuple(labels)),
        words,
        st.lists(words, max_size=3, unique=True),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda column: column.name,
)


@given(columns=columns, classes=st.lists(words, max_size=3, unique=True), likely=st.sampled_from([None, "softmax", "sigmoid"]))
@settings(max_examples=60, deadline=None)
def test_files_hold_any_schema(tmp_path_factory, columns, classes, likely):
    schema = Schema(tuple(columns), tuple(classes), likely)
    path = tmp_path_factory.mktemp("schema") / "s.toml"
    schema.write(path)
    assert Schema.read(path) == schema


def test_files_are_read_or_refused(tmp_path):
    SIDES.write(tmp_path / "s.toml")
    assert Schema.read(tmp_path / "s.toml") == SIDES
    assert 'labels = ["Oslo", "Rome", "Łódź"]' in (tmp_path / "s.toml").read_text(encoding="utf-8")
    for text, message in (
        ("columns = 3", "a schema has"),
        ("[[columns]]\nkind = 'number'", "a schema has"),
        ("[[columns]]\nname = 'a'\ncolour = 'red'", "a schema has"),
        ("rows = 3\n[[columns]]\nname = 'a'", "this has 'rows'"),
        ("[[columns]]\nname = 'a'\nkind = 'word'", "Allowed values"),
        ("classes = 3\n[[columns]]\nname = 'a'", "Schema.read"),
        ("[[columns", "no TOML file"),
        ("", "at least one"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(ValueError, match=message):
            Schema.read(tmp_path / "bad.toml")
    with pytest.raises(ValueError, match="cannot be read"):
        Schema.read(tmp_path / "none.toml")


def test_a_file_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "deep.toml").write_text("classes = " + "[" * 10_000 + "]" * 10_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        Schema.read(tmp_path / "deep.toml")
