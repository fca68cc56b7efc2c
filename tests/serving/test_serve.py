"""The server as programs meet it: a process of its own, real connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cafexai import CAFE
from command_files import NUMBERS, network, write_all
from serve_process import ask, server

ROW = [45, 5.2, 2]
KIND = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def net(shop):
    with server(shop, "shop:net", "--weights", "net.safetensors", "--columns", ",".join(NUMBERS)) as (port, _):
        yield port


def test_scores_are_those_of_explain(net):
    rows = [ROW, dict(zip(NUMBERS, [31, 3.1, 0], strict=True)), [62, 4.0, 3]]
    status, told = ask(net, "POST", "/v1/explain", {"rows": rows})
    expected = CAFE(network()).explain(torch.tensor([ROW, [31, 3.1, 0], [62, 4.0, 3]]).float())
    assert status == 200
    for row, result in enumerate(told["results"]):
        assert [feature["name"] for feature in result["features"]] == NUMBERS
        for word, scores in (("positive", expected.positive), ("negative", expected.negative), ("net", expected.combined)):
            assert [feature[word] for feature in result["features"]] == pytest.approx(scores[row].tolist(), rel=1e-5, abs=1e-6)
        for word in ("output", "baseline_output", "bias", "conflict"):
            assert result[word] == pytest.approx(getattr(expected, word)[row].item(), rel=1e-5, abs=1e-6)
        assert result["target"] == expected.target[row].item()


def test_one_bad_row_does_not_harm_the_others(net):
    rows = [ROW, [1, 2], [1, None, 3], [1, "two", 3], {"age": 1}, {"age": 1, "income": 2, "children": 3, "x": 4}, [], ROW]
    status, told = ask(net, "POST", "/v1/explain", {"rows": rows})
    assert status == 207
    assert told["failed"] == [1, 2, 3, 4, 5, 6]
    errors = [result.get("error") for result in told["results"]]
    assert errors[0] is errors[-1] is None
    assert told["results"][0] == told["results"][-1]
    for reason, words in zip(
        errors[1:-1], ("2 values", "missing", "no number", "no 'income'", "'x' is no column", "0 values"), strict=True
    ):
        assert words in reason


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ("{", 400, "no JSON"),
        ('{"rows": [[NaN, 1, 2]]}', 400, "NaN is no number"),
        ("[" * 100_000, 400, "no JSON"),
        ('{"rows": [[45, 5.2, 2]], "rows": [[31, 3.1, 0]]}', 400, "the key 'rows' is there twice"),
        ('{"rows": [{"age": 45, "income": 5.2, "age": 1, "children": 2}]}', 400, "the key 'age' is there twice"),
        ("[]", 422, "at least one row"),
        ('{"rows": []}', 422, "at least one row"),
        ('{"rows": [1]}', 422, "a row is"),
        ('{"rows": [[]], "more": 1}', 422, "nothing else"),
        (json.dumps({"rows": [[0, 0, 0]] * 1001}), 422, "1000 at most"),
    ],
)
def test_what_is_no_request_is_refused(net, body, status, told):
    found, answer = ask(net, "POST", "/v1/explain", body)
    assert found == status
    assert told in answer["error"]


def test_other_bodies_paths_and_methods(net):
    assert ask(net, "POST", "/v1/explain", "a=1", **{"Content-Type": "text/plain"})[0] == 415
    assert ask(net, "GET", "/v1/explain")[0] == 405
    assert ask(net, "GET", "/nothing")[0] == 404
    assert ask(net, "GET", "/health")[1]["status"] == "ok"


def test_words_that_are_numbers_are_taken_as_batch_takes_them(net):
    rows = [ROW, ["45", " 5.2", True], [45, 5.2, 1], ["forty", 5.2, 2], [45, "nan", 2], ["inf", 1, 2], [10**400, 1, 2]]
    told = ask(net, "POST", "/v1/explain", {"rows": rows})[1]["results"]
    assert told[1] == told[2]
    assert [result.get("error", "") for result in told[3:]] == [
        "'age' is 'forty', which is no number",
        "'income' is missing",
        "'age' is 'inf', which is not finite",
        f"'age' is {str(10**400)[:77]}..., which is no number",
    ]
    assert "output" in told[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:PORT"}, 200),
        ({"Host": "evil.example:PORT"}, 421),  # DNS rebinding
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "http://127.0.0.1:PORT"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
    ],
)
def test_requests_of_other_pages_are_refused(net, headers, status):
    headers = {name: value.replace("PORT", str(net)) for name, value in headers.items()}
    assert ask(net, "POST", "/v1/explain", {"rows": [ROW]}, **headers)[0] == status


def test_a_body_of_no_kind_is_refused(net):
    connection = http.client.HTTPConnection("127.0.0.1", net, timeout=60)
    connection.request("POST", "/v1/explain", json.dumps({"rows": [ROW]}))
    assert connection.getresponse().status == 415


def test_who_listens_everywhere_takes_any_host_but_no_other_page(shop):
    with server(shop, "shop:net", "--host", "0.0.0.0") as (port, _):
        assert ask(port, "POST", "/v1/explain", {"rows": [ROW]}, Host="shop.example")[0] == 200
        assert ask(port, "POST", "/v1/explain", {"rows": [ROW]}, Host="shop.example", Origin="https://shop.example")[0] == 200
        assert ask(port, "POST", "/v1/explain", {"rows": [ROW]}, Host="shop.example", Origin="http://evil.example")[0] == 403


def test_large_bodies_are_refused_before_they_are_read(net):
    with socket.create_connection(("127.0.0.1", net)) as one:
        one.sendall(f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1:{net}\r\n{KIND}Content-Length: 16777216\r\n\r\n".encode())
        assert b" 413 " in one.recv(1000).split(b"\r\n")[0]
    with socket.create_connection(("127.0.0.1", net)) as one:  # in chunks, without a length
        one.sendall(f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1:{net}\r\n{KIND}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(256):
                one.sendall(chunk)
        assert b" 413 " in one.recv(1000).split(b"\r\n")[0]
    assert ask(net, "POST", "/v1/explain", {"rows": [ROW]})[0] == 200


def test_a_request_of_bad_rows_alone(net):
    status, told = ask(net, "POST", "/v1/explain", {"rows": [[None, 1, 2], [[], {}, 1e308], [True, 1, 2]]})
    assert status == 207
    assert ["error" in result for result in told["results"]] == [True, True, False]
    status, told = ask(net, "POST", "/v1/explain", {"rows": [[None, 1, 2], [1, 2]]})
    assert status == 422
    assert told["failed"] == [0, 1]
    assert "none of 2 rows could be explained" in told["error"]


def test_many_at_once_are_explained_together(shop):
    """With --deterministic the answer to a row does not depend on the rows beside it."""
    columns = ("--columns", ",".join(NUMBERS), "--deterministic")
    with server(shop, "shop:net", "--weights", "net.safetensors", *columns) as (port, _):
        _ask_at_once(port)


def _ask_at_once(net):
    before = _count(net, "cafexai_batches_total")
    answers = []

    def one():
        answers.append(ask(net, "POST", "/v1/explain", {"rows": [ROW]}))

    threads = [threading.Thread(target=one) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40
    assert all(answer == answers[0] for answer in answers)
    assert _count(net, "cafexai_batches_total") - before < 40


def _count(port, name):
    lines = ask(port, "GET", "/metrics")[1].splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(name)))


@pytest.mark.parametrize("half", ["", "Content-Length: 5000\r\n\r\n{"], ids=["head", "body"])
def test_slow_connections_are_closed_and_others_are_answered(net, half):
    slow = []
    for _ in range(700):  # more than the 512 that may be there
        one = socket.create_connection(("127.0.0.1", net))
        with contextlib.suppress(OSError):
            one.sendall(f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1:{net}\r\n{KIND}{half}".encode())
        slow.append(one)
    assert ask(net, "POST", "/v1/explain", {"rows": [ROW]})[0] == 200
    until = time.monotonic() + 60
    for one in slow:
        one.settimeout(max(0.1, until - time.monotonic()))
        with contextlib.suppress(ConnectionResetError):
            while one.recv(1000):  # until it is closed; one that is left open would end in a TimeoutError
                pass
        one.close()
    assert ask(net, "GET", "/health")[0] == 200


def test_the_document_describes_the_answers(net):
    told = ask(net, "GET", "/openapi.json")[1]
    assert {"/v1/explain", "/v1/models/model:explain", "/v2/models/model/infer", "/health", "/metrics"} <= set(told["paths"])
    result = ask(net, "POST", "/v1/explain", {"rows": [ROW]})[1]["results"][0]
    described = told["components"]["schemas"]["Result"]
    assert set(described["required"]) <= set(result) <= set(described["properties"])


def test_what_is_under_way_is_finished_on_sigterm(shop):
    (shop / "slowly.py").write_text(
        "import time\nfrom torch import nn\n\nclass Slow(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(3, 1)\n\n    def forward(self, x):\n        time.sleep(1)\n        return self.body(x)\n"
    )
    with server(shop, "slowly:Slow", "--drain", "0") as (port, process):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(ask(port, "POST", "/v1/explain", {"rows": [ROW]})))
        thread.start()
        time.sleep(0.7)
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert answers[0][0] == 200
        assert "output" in answers[0][1]["results"][0]
        assert process.wait(30) in (0, -signal.SIGTERM)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 1)


def test_who_is_connected_when_it_stops_to_listen_is_answered(shop, net):
    """Connections that wait to be accepted would be reset, and what they are about to ask would be lost."""
    words = ("shop:net", "--weights", "net.safetensors", "--columns", ",".join(NUMBERS), "--drain", "0")
    body = json.dumps({"rows": [ROW]})
    with server(shop, *words) as (port, process), contextlib.ExitStack() as stack:
        process.send_signal(signal.SIGSTOP)
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(40)]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        head = f"POST /v1/explain HTTP/1.1\r\nHost: localhost:{port}\r\n{KIND}Content-Length: {len(body)}\r\n\r\n"
        for one in connections:
            one.sendall((head + body).encode())
        for one in connections:
            one.settimeout(30)
            assert one.recv(12) == b"HTTP/1.1 200"
        assert process.wait(30) in (0, -signal.SIGTERM)


def test_a_port_that_is_taken(shop, net):
    words = [sys.executable, "-m", "cafexai", "serve", "shop:net", "--port", str(net)]
    told = subprocess.run(words, cwd=shop, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "another program listens there" in told.stderr


@pytest.mark.slow
def test_strange_requests_against_the_document(net, tmp_path):
    """Schemathesis asks what the document allows, and what it does not."""
    pytest.importorskip("schemathesis")
    states = '["400", "413", "415", "422", "503"]'  # 413 is not among those that it knows for refusals
    settings = f"[checks]\nnegative_data_rejection.expected-statuses = {states}\n"
    (tmp_path / "schemathesis.toml").write_text(settings + 'positive_data_acceptance.expected-statuses = ["2xx", "413"]\n')
    words = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
    words += [f"http://127.0.0.1:{net}/openapi.json", "--max-examples", "100"]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-3000:]
