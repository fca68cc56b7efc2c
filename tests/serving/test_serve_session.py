"""The server keeps a session open for its model."""

import logging

import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.errors import ModelChanged
from cafexai.serving.rows import Answerer, Asked
from cafexai.serving.service import Service

ROWS = [[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def answers(service, rows=ROWS):
    return [
        {name: value for name, value in one.items() if name != "fingerprint"}
        for one in service.answerer(rows, [Asked()] * len(rows))
    ]


def test_answers_are_those_without_a_session_also_after_a_reload():
    service = Service(Answerer(CAFE(network(0))), load=lambda: Answerer(CAFE(network(1))))
    assert answers(service) == answers(service) == Answerer(CAFE(network(0)))(ROWS)
    first = service.answerer.cafe
    assert first._subject.session is not None
    service._wanted.set()
    service._reloaded()
    assert first._subject.session is None
    assert answers(service) == Answerer(CAFE(network(1)))(ROWS)
    service.close()
    assert service.answerer.cafe._subject.session is None


def test_a_model_that_changes_is_an_error_not_a_bad_row(caplog):
    model = network(0)
    service = Service(Answerer(CAFE(model)))
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(ModelChanged, match="inside a session"):
        answers(service)
    with caplog.at_level(logging.ERROR, "cafexai.serve"):
        service.close()
    assert "discard them" in caplog.text
