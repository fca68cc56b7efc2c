"""Odd requests and faults inside: an answer in JSON that says what is wrong, and a server that goes on."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from torch import nn

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

from cafexai import CAFE
from cafexai.serving.app import application
from cafexai.serving.bodies import Limits
from cafexai.serving.metrics import Counts
from cafexai.serving.observe import Observed
from cafexai.serving.rows import Answerer
from cafexai.serving.service import Service

INFER = "/v2/models/model/infer"


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


@pytest.fixture(scope="module")
def client():
    service = Service(Answerer(CAFE(network()), ["a", "b", "c"]))
    with TestClient(Observed(application(service, Limits()), service), raise_server_exceptions=False) as client:
        yield client


def post(client, path, body):
    text = body if isinstance(body, str) else json.dumps(body)
    return client.post(path, content=text.encode(), headers={"Content-Type": "application/json"})


def tensor(**other):
    return {"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [1, 2, 3], **other}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"inputs": [tensor()], "outputs": [{"name": ["net"]}]}, "outputs is a list"),
        ({"inputs": [tensor(shape=[99999999] * 1000)]}, "no list of sizes"),
        ({"inputs": [tensor(shape=[2**70, 3])]}, "no list of sizes"),
        ({"inputs": [tensor(datatype="INT8", data=[128, 2, 3])]}, "not INT8"),
        ({"inputs": [tensor(datatype="INT8", data=[-129, 2, 3])]}, "not INT8"),
        ({"inputs": [tensor(datatype="UINT8", data=[-1, 2, 3])]}, "not UINT8"),
        ({"inputs": [tensor(datatype="UINT64", data=[2**64, 2, 3])]}, "not UINT64"),
        ({"inputs": [tensor(datatype="FP16", data=[65520, 2, 3])]}, "not FP16"),
        ({"inputs": [tensor(datatype="FP32", data=[3.5e38, 2, 3])]}, "not FP32"),
        ('{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [1e400, 2, 3]}]}', "not FP64"),
    ],
)
def test_tensors_that_no_tensor_can_hold_are_refused(client, body, told):
    answer = post(client, INFER, body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]


@pytest.mark.parametrize(
    ("kind", "data"),
    [("INT8", [-128, 127, 0]), ("UINT8", [255, 0, 1]), ("FP16", [65504, 1, 2]), ("FP32", [3.4028235e38, 0, 0])],
)
def test_tensors_at_the_ends_of_their_types_are_taken(client, kind, data):
    assert post(client, INFER, {"inputs": [tensor(datatype=kind, data=data)]}).status_code in (
        200,
        422,
    )  # a sum may be too large


def test_half_a_pair_of_surrogates_comes_back_as_it_was_sent(client):
    answer = post(client, INFER, '{"id": "\\ud800", "inputs": [' + json.dumps(tensor()) + "]}")
    assert answer.status_code == 200
    assert answer.json()["id"] == "\ud800"


def test_a_fault_inside_is_an_answer_with_the_id_of_its_log_line(client, monkeypatch, caplog):
    def broken(*_):
        raise ArithmeticError("inside")

    monkeypatch.setattr("cafexai.serving.app.outputs_of", broken)
    answer = post(client, INFER, {"inputs": [tensor()]})
    assert answer.status_code == 500
    assert answer.json()["error"] == "a fault of the server; its log says which"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    monkeypatch.undo()
    assert post(client, INFER, {"inputs": [tensor()]}).status_code == 200


@pytest.mark.parametrize("fault", ["counts", "rows"])
def test_the_queue_outlives_faults(client, monkeypatch, caplog, fault):
    if fault == "counts":
        monkeypatch.setattr(Counts, "batch", lambda *_: 1 / 0)
    else:
        monkeypatch.setattr(Answerer, "__call__", lambda *_: [{}])  # a row without a result
    with caplog.at_level(logging.ERROR, "cafexai.serve"):
        answer = post(client, "/v1/explain", {"rows": [[1, 2, 3]]})
    assert answer.status_code == 500
    assert ("division by zero" if fault == "counts" else "a row has no result") in answer.json()["error"]
    assert "1 rows could not be answered" in caplog.text
    monkeypatch.undo()
    assert post(client, "/v1/explain", {"rows": [[1, 2, 3]]}).status_code == 200


def test_sums_beyond_all_numbers_are_told_as_prometheus_calls_them():
    counts = Counts()
    for value in (1e308, 1e308):
        counts.batch([{"output": value, "conflict": -value, "features": []}], 0.0)
    text = counts.text({"name": "model"})
    assert "cafexai_output_sum +Inf" in text
    assert "cafexai_conflict_sum -Inf" in text


class _Steep(nn.Module):
    """Units whose influence cancels, and is too large for float32 before."""

    def forward(self, x):
        return ((3e38 * x).relu() - (3e38 * x.flip(1)).relu()).sum(1, keepdim=True)


@pytest.mark.parametrize("variant", ["default", "published", "feature"])
def test_scores_that_leave_the_range_of_their_precision_are_never_infinite(variant):
    explanation = CAFE(_Steep(), variant=variant).explain(torch.tensor([[1.0, 0.1, 1.0]], dtype=torch.float32))
    for part in (explanation.positive, explanation.negative, explanation.s_conf):
        assert part.isfinite().all()
