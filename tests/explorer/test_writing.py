"""What a language model writes, in the explorer: the numbers of ``generation``, and refusals."""

import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.explorer.api import Api
from cafexai.explorer.requests import Refused
from cafexai.explorer.rows import Rows, table_of
from cafexai.explorer.session import Session

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")
from generation.test_generation import PROMPT, build, byte_pairs

TEXTS = ["You may copy the Program", PROMPT, "copy the " * 9]


@pytest.fixture(scope="module")
def api():
    tokenizer = byte_pairs()
    cafe = CAFE(build("gpt2", len(tokenizer)), tokenizer=tokenizer)
    session = Session(cafe, Rows(cafe.model, table_of(TEXTS)), output="logits[:, -1]")
    yield Api(session)
    session.end()


def test_the_numbers_are_those_of_generation(api):
    assert api.about({})["writes"] == 60
    cafe = api.session.cafe
    for body, prompt in (({"row": 1}, PROMPT), ({"row": 0, "edits": {"struck": [1, 2]}}, "You the Program")):
        found = api.generation({**body, "tokens": 4, "choice": {"c": 0.25}})
        expected = cafe.replace(c=0.25).generation(prompt, max_new_tokens=4, baselines="zero")
        assert found["text"] == expected.text
        assert len(found["tokens"]) == len(found["chances"]) == len(expected) == 4
        there = expected.seen.any(0)
        torch.testing.assert_close(torch.tensor(found["net"]), expected.scores[there].double(), check_dtype=False)
        assert torch.equal(torch.tensor(found["seen"]), expected.seen.mT[there])
        assert [[float(text) for text in line] for line in found["told"]] == [
            [pytest.approx(value, abs=0.005) for value in line] for line in found["net"]
        ]
        assert found["border"] == prompt.count(" ") + 1


def test_what_cannot_be_written_is_refused(api):
    with pytest.raises(Refused):
        api.generation({"row": 0, "tokens": 61})
    with pytest.raises(Refused, match="64 positions"):
        api.generation({"row": 2, "tokens": 60})
    table = Session(CAFE(nn.Linear(2, 2)), Rows(nn.Linear(2, 2), table_of(torch.rand(3, 2))))
    try:
        assert Api(table).about({})["writes"] == 0
        with pytest.raises(Refused, match="does not write"):
            Api(table).generation({"row": 0})
    finally:
        table.end()
