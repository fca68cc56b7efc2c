"""KServe's protocol and the Open Inference Protocol, options of a request, draining, reloading, several processes, logs."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from safetensors.torch import load_file, save_file

from cafexai import CAFE
from cafexai.batch import Fingerprints
from cafexai.serving.metrics import Counts
from command_files import NUMBERS, network, write_all
from serve_process import ask, server

ROW, OTHER = [45, 5.2, 2], [31, 3.1, 0]
NET = ("shop:net", "--weights", "net.safetensors", "--columns", ",".join(NUMBERS))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def net(shop):
    with server(shop, *NET, "--name", "credit") as (port, _):
        yield port


def columns_of(rows, kind="FP64"):
    shape = [len(rows)]
    return [{"name": n, "shape": shape, "datatype": kind, "data": [row[i] for row in rows]} for i, n in enumerate(NUMBERS)]


def test_kserve_explains_as_the_own_route_does(net):
    own = ask(net, "POST", "/v1/explain", {"rows": [ROW, OTHER]})[1]
    status, told = ask(net, "POST", "/v1/models/credit:explain", {"instances": [ROW, OTHER]})
    assert status == 200
    assert [one.keys() for one in told["explanations"]] == [one.keys() for one in own["results"]]
    assert [one["output"] for one in told["explanations"]] == pytest.approx([one["output"] for one in own["results"]])
    assert ask(net, "GET", "/") == (200, {"status": "alive"})
    assert ask(net, "GET", "/v1/models")[1] == {"models": ["credit"]}
    assert ask(net, "GET", "/v1/models/credit") == (200, {"name": "credit", "ready": True})
    assert ask(net, "POST", "/v1/models/other:explain", {"instances": [ROW]})[0] == 404
    assert ask(net, "POST", "/v1/models/credit:explain", {"rows": [ROW]})[0] == 422


def test_tensors_in_and_tensors_out(net):
    about = ask(net, "GET", "/v2/models/credit")[1]
    assert [(one["name"], one["datatype"]) for one in about["inputs"]] == [(name, "FP64") for name in NUMBERS]
    expected = CAFE(network()).explain(torch.tensor([ROW, OTHER]).float())
    matrix = [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [*ROW, *OTHER]}]
    nested = [{**matrix[0], "data": [ROW, OTHER]}]
    for inputs in (columns_of([ROW, OTHER]), matrix, nested):
        status, told = ask(net, "POST", "/v2/models/credit/infer", {"id": "a", "inputs": inputs})
        assert (status, told["id"], told["model_name"]) == (200, "a", "credit")
        assert told["model_version"] == about["versions"][0]
        made = {one["name"]: one for one in told["outputs"]}
        assert {one["name"] for one in about["outputs"]} <= set(made)
        assert made["net"]["shape"] == [2, 3]
        assert made["net"]["data"] == pytest.approx(expected.combined.flatten().tolist(), rel=1e-5, abs=1e-6)
        assert made["output"]["data"] == pytest.approx(expected.output.tolist(), rel=1e-5)
        assert made["features"]["data"] == NUMBERS * 2
    path = f"/v2/models/credit/versions/{about['versions'][0]}/infer"
    wanted = {"inputs": matrix, "outputs": [{"name": "conflict"}], "parameters": {"top": 1, "target": 0}}
    status, told = ask(net, "POST", path, wanted)
    assert [one["name"] for one in told["outputs"]] == ["conflict"]
    assert ask(net, "GET", "/v2")[1]["name"] == "cafexai"
    assert ask(net, "GET", "/v2/health/live")[0] == 200
    assert ask(net, "GET", "/v2/health/ready") == (200, {"ready": True})
    assert ask(net, "GET", "/v2/models/credit/ready")[0] == 200
    assert ask(net, "GET", "/v2/models/credit/versions/9")[0] == 404


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "send"),
        ({"inputs": [{"name": "x"}]}, 400, "shape"),
        ({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2]}]}, 400, "2 values"),
        ({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "INT64", "data": [1, 2.5, 3]}]}, 400, "not INT64"),
        ({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "COMPLEX", "data": [1, 2, 3]}]}, 400, "datatype"),
        ({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [[1, 2], 3]}]}, 400, "unevenly"),
        ({"inputs": [{"name": "x", "shape": [0, 3], "datatype": "FP64", "data": []}]}, 400, "1 to 1000"),
        ({"inputs": columns_of([ROW])[:2]}, 400, "one tensor for each of 'age', 'income', 'children'"),
        ({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]}, 422, "row 0: 2 values"),
        ({"inputs": columns_of([ROW]), "outputs": [{"name": "no"}]}, 400, "no output 'no'"),
        ({"inputs": columns_of([ROW]), "parameters": {"top": 0}}, 422, "top is 0"),
    ],
)
def test_tensors_that_are_none(net, body, status, told):
    found, answer = ask(net, "POST", "/v2/models/credit/infer", body)
    assert found == status
    assert told in answer["error"]


def test_options_of_a_request(net):
    cafe, x = CAFE(network()), torch.tensor([ROW, OTHER]).float()
    for body, options in (
        ({"target": 0}, {"target": 0}),
        ({"target": 1, "against": 0}, {"target": 1, "against": 0}),
        ({"target": None, "top": None}, {}),
    ):
        status, told = ask(net, "POST", "/v1/explain", {"rows": [ROW, OTHER], **body})
        expected = cafe.explain(x, **options)
        assert status == 200
        for row, result in enumerate(told["results"]):
            nets = [one["net"] for one in result["features"]]
            assert nets == pytest.approx(expected.combined[row].tolist(), rel=1e-5, abs=1e-6)
    full = ask(net, "POST", "/v1/explain", {"rows": [ROW]})[1]["results"][0]["features"]
    one = ask(net, "POST", "/v1/explain", {"rows": [ROW], "top": 1})[1]["results"][0]["features"]
    assert [feature["name"] for feature in one] == [max(full, key=lambda f: abs(f["net"]))["name"]]
    for body, told in (
        ({"target": 99}, "99"),
        ({"target": 0.5}, "give the index"),
        ({"target": True}, "give the index"),
        ({"target": "all"}, "about one output"),
        ({"top": -1}, "top is -1"),
        ({"others": 1}, "nothing else"),
    ):
        status, answer = ask(net, "POST", "/v1/explain", {"rows": [ROW], **body})
        assert status == 422
        assert told in answer["error"]


def test_requests_with_other_options_at_once_get_their_own_answers(net):
    answers = {}

    def one(place):
        answers[place] = ask(net, "POST", "/v1/explain", {"rows": [ROW], "target": place % 2, "top": 1 + place % 3})

    threads = [threading.Thread(target=one, args=(place,)) for place in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, (status, told) in answers.items():
        assert status == 200
        assert told["results"][0]["target"] == place % 2
        assert len(told["results"][0]["features"]) == 1 + place % 3


def test_every_answer_says_what_made_it(net):
    made = Fingerprints.of(CAFE(network()), columns=NUMBERS).as_dict()
    assert ask(net, "GET", "/health")[1]["fingerprint"] == made
    assert ask(net, "POST", "/v1/explain", {"rows": [ROW]})[1]["fingerprint"] == made
    told = ask(net, "POST", "/v2/models/credit/infer", {"inputs": columns_of([ROW])})[1]["parameters"]
    assert told == {f"fingerprint_{name}": value for name, value in made.items()}
    assert f'model="{made["model"]}"' in ask(net, "GET", "/metrics")[1]
    connection = http.client.HTTPConnection("127.0.0.1", net, timeout=60)
    for path, status in (("/nothing", 404), ("/health", 200)):
        connection.request("GET", path, headers={"X-Request-Id": "abc-1"})
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.getheader("x-request-id")) == (status, "abc-1")
        assert answer.getheader("x-cafexai-fingerprint") == made["id"]
    connection.request("GET", "/nothing", headers={"X-Request-Id": "a b"})
    answer = connection.getresponse()
    assert json.loads(answer.read())["request_id"] == answer.getheader("x-request-id") != "a b"
    connection.close()


def test_rows_of_the_document_have_types(shop, net):
    rows = ask(net, "GET", "/openapi.json")[1]["components"]["schemas"]["Row"]["oneOf"]
    assert rows[0]["properties"] == {name: {"type": "number"} for name in NUMBERS}
    assert rows[0]["required"] == NUMBERS
    status, _ = ask(net, "POST", "/v1/explain", {"rows": [rows[0]["examples"][0], rows[1]["examples"][0]]})
    assert status == 200


def test_metrics_have_histograms(net):
    ask(net, "POST", "/v1/explain", {"rows": [ROW] * 5})
    text = ask(net, "GET", "/metrics")[1]
    for name in ("cafexai_output", "cafexai_conflict", "cafexai_conflict_share", "cafexai_request_seconds"):
        buckets = [line for line in text.splitlines() if line.startswith(f"{name}_bucket")]
        counts = [int(line.split()[-1]) for line in buckets]
        assert counts == sorted(counts)
        assert f"{name}_count {counts[-1]}" in text
    assert 'cafexai_strongest_feature_total{feature="' in text
    prometheus = pytest.importorskip("prometheus_client.parser")
    assert {one.name for one in prometheus.text_string_to_metric_families(text)} >= {"cafexai_rows", "cafexai_output"}


def test_counts_of_several_processes_are_summed(tmp_path):
    first, second = Counts(str(tmp_path), 0), Counts(str(tmp_path), 1)
    features = [
        {"name": 'a"\\\n', "positive": 2.0, "negative": 1.0, "net": 1.0},
        {"name": "cancelled", "positive": 9.0, "negative": 9.0, "net": 0.0},
    ]
    first.batch([{"output": 0.5, "conflict": 0.2, "features": features}, {"error": "x"}], 0.1)
    second.batch([{"output": -0.5, "conflict": 2.0, "features": features}], 0.1)
    second.request(200, 0.003)
    first.keep()
    text = second.text({"id": "x"})
    assert "cafexai_rows_total 3\n" in text
    assert "cafexai_rows_refused_total 1\n" in text
    assert 'cafexai_output_bucket{le="0"} 1\n' in text
    assert "cafexai_output_count 2\n" in text
    assert 'cafexai_strongest_feature_total{feature="a\\"\\\\\\n"} 2\n' in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}  # no draft stays
    again = Counts(str(tmp_path), 0)  # started again, it goes on
    assert "cafexai_rows_total 3\n" in again.text({})


def test_it_is_not_ready_while_it_drains_and_answers_all_the_same(shop):
    with server(shop, *NET, "--drain", "2", "--log-level", "info", "--log-format", "json") as (port, process):
        assert ask(port, "GET", "/v2/health/ready")[0] == 200
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert ask(port, "GET", "/v2/health/ready") == (503, {"ready": False})
        assert ask(port, "GET", "/v2/health/live")[0] == 200
        assert ask(port, "GET", "/health")[1]["status"] == "draining"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"rows": [ROW, [1]]})
        connection.request("POST", "/v1/explain", body, {"Content-Type": "application/json", "X-Request-Id": "last"})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (207, "close")
        connection.close()
        assert process.wait(30) in (0, -signal.SIGTERM)
        lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    (last,) = [line for line in lines if line.get("request_id") == "last"]
    assert (last["status"], last["rows"], last["failed"], last["logger"]) == (207, 2, 1, "cafexai.serve")
    assert any("SIGTERM" in line["message"] for line in lines)


def test_sighup_loads_the_weights_again_and_never_kills(shop):
    before = {name: value.clone() for name, value in load_file(shop / "net.safetensors").items()}
    with server(shop, *NET, "--log-level", "error") as (port, process):
        _, first = ask(port, "POST", "/v1/explain", {"rows": [ROW]})
        try:
            save_file({name: value * 2 for name, value in before.items()}, shop / "net.safetensors")
            second = _after_sighup(port, process, first)
            assert second["results"][0]["output"] != pytest.approx(first["results"][0]["output"])
            (shop / "net.safetensors").write_bytes(b"nothing")
            process.send_signal(signal.SIGHUP)
            until = time.monotonic() + 60
            while 'result="failed"' not in ask(port, "GET", "/metrics")[1] and time.monotonic() < until:
                time.sleep(0.1)
            assert ask(port, "POST", "/v1/explain", {"rows": [ROW]})[1]["fingerprint"] == second["fingerprint"]
        finally:
            save_file(before, shop / "net.safetensors")
        assert process.poll() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_while_the_model_is_loaded_is_kept_for_later(shop, tmp_path, workers):
    """Sent every 0.1 s from the first load until it answers, also to processes that have only just begun."""
    code = "import os, time, pathlib, torch\n\ndef net():\n    with open('loads', 'a') as file:\n"
    code += "        file.write(f'{os.getpid()}\\n')\n    time.sleep(1)\n    return torch.nn.Linear(3, 1)\n"
    (tmp_path / "slow.py").write_text(code)
    loads = tmp_path / "loads"

    def hang_up(process):
        if loads.exists():
            process.send_signal(signal.SIGHUP)

    with server(tmp_path, "slow:net", "--workers", str(workers), meanwhile=hang_up) as (port, process):
        until = time.monotonic() + 60
        while time.monotonic() < until and len(_loaded(loads)) < (2 if workers == 1 else 5):
            time.sleep(0.1)
        assert ask(port, "POST", "/v1/explain", {"rows": [ROW]})[0] == 200
        assert process.poll() is None
        assert len(set(_loaded(loads))) == (1 if workers == 1 else 3)  # none was started again
        assert len(_loaded(loads)) > len(set(_loaded(loads)))  # and the model was loaded again


def _loaded(loads):
    return loads.read_text().split() if loads.exists() else []


class _Model:
    """An answerer whose answer takes a while."""

    def __init__(self, name):
        self.fingerprint, self.columns, self.begun, self.go = {"id": name * 20}, None, threading.Event(), threading.Event()
        self.version, self.cafe = self.fingerprint["id"][:12], CAFE(nn.Identity())

    def __call__(self, rows, asked):
        self.begun.set()
        self.go.wait(60)
        features = [{"name": self.version, "positive": 1.0, "negative": 0.0, "net": 1.0}]
        return [{"output": 1.0, "target": 0, "features": features} for _ in rows]


def test_a_request_is_answered_by_the_model_it_came_to():
    pytest.importorskip("httpx")
    from starlette.testclient import TestClient

    from cafexai.serving.app import application
    from cafexai.serving.bodies import Limits
    from cafexai.serving.observe import Observed
    from cafexai.serving.service import Service

    old, new = _Model("old"), _Model("new")
    service = Service(old)
    tensors = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP64", "data": ROW}]}
    with TestClient(Observed(application(service, Limits()), service)) as client:
        for path, body in (("/v1/explain", {"rows": [ROW]}), ("/v2/models/model/infer", tensors)):
            service.answerer, found = old, []
            old.begun.clear()
            old.go.clear()
            thread = threading.Thread(
                target=lambda path=path, body=body, found=found: found.append(client.post(path, json=body))
            )
            thread.start()
            assert old.begun.wait(60)
            service.answerer = new  # loaded again while the old one answers
            new.go.set()
            old.go.set()
            thread.join()
            (answer,) = found
            assert answer.status_code == 200
            assert answer.headers["x-cafexai-fingerprint"] == old.fingerprint["id"]
            assert old.fingerprint["id"] in answer.text
            assert old.version in answer.text
            assert new.version not in answer.text
            assert client.post(path, json=body).headers["x-cafexai-fingerprint"] == new.fingerprint["id"]


@pytest.mark.slow
def test_processes_that_never_answer_are_given_up(tmp_path, monkeypatch):
    from cafexai.serving import workers

    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    monkeypatch.setattr(workers, "AGAIN", 0.02)
    started = []

    def make(place):
        started.append(place)
        return multiprocessing.get_context("fork").Process(target=time.sleep, args=(0 if place else 60,))

    try:
        with pytest.raises(ChildProcessError, match=r"5 processes in a row ended before they answered, the last with code 0"):
            workers.Workers(2, make, str(tmp_path)).run()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert started == [0, 1, 1, 1, 1, 1]


def _after_sighup(port, process, first):
    process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        _, told = ask(port, "POST", "/v1/explain", {"rows": [ROW]})
        if told["fingerprint"] != first["fingerprint"]:
            return told
        time.sleep(0.1)
    raise AssertionError("the model was not loaded again")


def test_several_processes_answer_and_one_that_dies_is_replaced(shop):
    with server(shop, *NET, "--workers", "2", "--drain", "0") as (port, process):
        assert ask(port, "POST", "/v1/explain", {"rows": [ROW]})[0] == 200
        children = _children(process.pid)
        assert len(children) == 2
        process.send_signal(signal.SIGHUP)
        os.kill(children[0], signal.SIGKILL)
        until = time.monotonic() + 90
        while time.monotonic() < until and (len(_children(process.pid)) < 2 or children[0] in _children(process.pid)):
            time.sleep(0.2)
        assert len(_children(process.pid)) == 2
        for _ in range(20):
            assert ask(port, "POST", "/v1/explain", {"rows": [ROW]})[0] == 200
        time.sleep(1.5)
        text = ask(port, "GET", "/metrics")[1]
        assert float(next(line.split()[-1] for line in text.splitlines() if line.startswith("cafexai_rows_total"))) >= 20
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)


def _children(process):
    told = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process)], capture_output=True, text=True, check=True
    ).stdout
    return [int(line.split()[0]) for line in told.splitlines() if "spawn_main" in line]


def test_words_that_are_wrong(shop):
    for words, told in (
        (("--name", "a/b"), "--name a/b"),
        (("--log-level", "loud"), "Allowed values: debug, info, warning, error"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "cafexai", "serve", *NET, *words], cwd=shop, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert told in done.stderr
