"""``cafexai serve`` asked by clients that others wrote: kserve, tritonclient (Open Inference Protocol), requests, curl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from cafexai import CAFE
from command_files import NUMBERS, network, write_all
from serve_process import server

ROWS = [[45, 5.2, 2], [31, 3.1, 0]]
KSERVE = Path(os.environ.get("CAFEXAI_KSERVE", Path(__file__).parents[2] / ".venv" / "kserve" / "bin" / "python"))


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    shop = write_all(tmp_path_factory.mktemp("shop"))
    net = ("shop:net", "--weights", "net.safetensors", "--columns", ",".join(NUMBERS), "--name", "credit")
    with server(shop, *net) as (port, _):
        yield port


@pytest.fixture(scope="module")
def expected():
    return CAFE(network()).explain(torch.tensor(ROWS).float())


def _assert_explained(results, expected):
    for row, result in enumerate(results):
        assert result["output"] == pytest.approx(expected.output[row].item(), rel=1e-5)
        nets = {one["name"]: one["net"] for one in result["features"]}
        assert [nets[name] for name in NUMBERS] == pytest.approx(expected.combined[row].tolist(), rel=1e-5, abs=1e-6)


def test_tritonclient_gets_scores_as_tensors(port, expected):
    pytest.importorskip("gevent")  # without these, tritonclient.http raises something else than ImportError
    pytest.importorskip("geventhttpclient")
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("credit")
        about = client.get_model_metadata("credit")
        assert [one["name"] for one in about["inputs"]] == NUMBERS
        columns = [triton.InferInput(one["name"], [len(ROWS)], one["datatype"]) for one in about["inputs"]]
        for column, values in zip(columns, np.array(ROWS, np.float64).T, strict=True):
            column.set_data_from_numpy(values, binary_data=False)
        wanted = [triton.InferRequestedOutput(name, binary_data=False) for name in ("output", "positive", "negative", "net")]
        kind = {"Content-Type": "application/json"}
        told = client.infer("credit", columns, outputs=wanted, request_id="first", headers=kind)
        assert told.get_response()["id"] == "first"
        np.testing.assert_allclose(told.as_numpy("net"), expected.combined.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told.as_numpy("positive"), expected.positive.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told.as_numpy("negative"), expected.negative.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told.as_numpy("output"), expected.output.numpy(), rtol=1e-5)
        with pytest.raises(triton.InferenceServerException, match="one tensor for each of"):
            client.infer("credit", columns[:2], outputs=wanted, headers=kind)


@pytest.mark.skipif(not KSERVE.exists(), reason="kserve has an environment of its own, which make engines makes")
def test_the_client_of_kserve_speaks_both_protocols(port, expected):
    script, alone = Path(__file__).with_name("kserve_client.py"), {name: os.environ[name] for name in ("PATH", "HOME")}
    words = [str(KSERVE), str(script), str(port), json.dumps(ROWS)]
    done = subprocess.run(words, capture_output=True, text=True, env=alone, check=False)
    assert done.returncode == 0, done.stderr
    v1, v2 = json.loads(done.stdout).values()
    assert v1["live"] is v1["ready"] is v2["live"] is v2["ready"] is True
    _assert_explained(v1["explanations"], expected)
    assert "none of 1 rows could be explained" in v1["error"]
    assert "422" in v1["error"]
    assert v2["models"] == [True, False]
    assert v2["id"] == "first"
    assert "fingerprint_model" in v2["parameters"]
    for net in v2["net"]:
        np.testing.assert_allclose(net, expected.combined.numpy(), rtol=1e-5, atol=1e-6)


def test_requests_gets_explanations_by_both_routes(port, expected):
    requests = pytest.importorskip("requests")
    with requests.Session() as session:
        session.trust_env = False  # no proxy between this machine and itself
        own = session.post(f"http://127.0.0.1:{port}/v1/explain", json={"rows": ROWS}, timeout=60)
        kserve = session.post(f"http://127.0.0.1:{port}/v1/models/credit:explain", json={"instances": ROWS}, timeout=60)
        plain = session.post(f"http://127.0.0.1:{port}/v1/explain", data=json.dumps({"rows": ROWS}), timeout=60)
    assert (own.status_code, kserve.status_code) == (200, 200)
    _assert_explained(own.json()["results"], expected)
    _assert_explained(kserve.json()["explanations"], expected)
    assert plain.status_code == 415
    assert "Content-Type: application/json" in plain.json()["error"]


def test_curl_gets_what_the_docs_show(port, expected):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"rows": [dict(zip(NUMBERS, row, strict=True)) for row in ROWS]})
    address = f"localhost:{port}/v1/explain"
    words = ["curl", "--silent", "--fail", "--noproxy", "*", "--max-time", "60", address]
    words += ["-H", "Content-Type: application/json", "-d", body]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    _assert_explained(json.loads(done.stdout)["results"], expected)
