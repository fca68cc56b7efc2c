"""Nobody but a page of this machine with the token can talk to the explorer: against the running server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

from explorer_server import ODD, SCRIPT, USUAL, serving, write_files  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(write_files(tmp_path_factory.mktemp("explorer")), *USUAL) as running:
        yield running


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.root, cookies=server.cookie, timeout=60) as made:
        yield made


@pytest.fixture
def stranger(server):
    with httpx.Client(base_url=server.root, timeout=60) as made:
        yield made


JSON = {"content-type": "application/json"}
POLICY = (
    r"default-src 'none'; script-src 'nonce-([\w-]+)'; style-src 'nonce-\1'; img-src data:; connect-src 'self'; "
    r"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def test_the_token_becomes_a_cookie(server, stranger):
    answer = stranger.get("/", params={"token": server.token})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert cookie == f"cafexai-{server.port}={server.token}; HttpOnly; SameSite=Strict; Path=/"
    assert stranger.get("/").status_code == 200  # the cookie was kept


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/static/style.css"])
def test_without_token_nothing_is_shown(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert "people" not in answer.text
    assert "import" not in answer.text


@pytest.mark.parametrize("name", ["about", "rows", "row", "report", "no-such-thing"])
def test_without_token_nothing_is_answered(server, stranger, name):
    assert stranger.post(f"/api/{name}", json={"row": 0}).status_code == 401
    wrong = {f"cafexai-{server.port}": server.token[:-1] + "x"}
    assert httpx.post(f"{server.root}api/{name}", json={"row": 0}, cookies=wrong).status_code == 401
    assert httpx.post(f"{server.root}api/{name}?token={server.token}", json={"row": 0}).status_code == 401
    assert httpx.post(f"{server.root}api/{name}", json={}, cookies={"cafexai-1": server.token}).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "0.0.0.0:{port}", ""]
)
def test_foreign_host_is_refused_before_anything_else(server, client, host):
    host = host.format(port=server.port)
    for path in ("/", f"/?token={server.token}", "/static/main.js"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code in (400, 421)
        assert "set-cookie" not in answer.headers
    # an Origin that fits the foreign host helps nothing
    answer = client.post("/api/about", json={}, headers={"host": host, "origin": f"http://{host}"})
    assert answer.status_code in (400, 421)


def test_known_hosts_are_served(server, client):
    for host in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert client.get("/", headers={"host": f"{host}:{server.port}"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", "http://localhost"]
)
def test_foreign_origin_is_refused(client, origin):
    answer = client.post("/api/about", json={}, headers={"origin": origin})
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_own_origin_is_served_without_any_cors(server, client):
    answer = client.post("/api/about", json={}, headers={"origin": f"http://127.0.0.1:{server.port}"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options("/api/about", headers={"access-control-request-method": "POST"}).status_code == 405


def test_other_sites_cannot_fetch(client):
    for site in ("cross-site", "same-site"):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        assert client.get("/static/main.js", headers=headers).status_code == 403
        assert client.post("/api/about", json={}, headers=headers | {"sec-fetch-mode": "navigate"}).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""])
def test_only_json_is_taken(client, kind):
    headers = {"content-type": kind} if kind else {}
    assert client.post("/api/about", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff", b'{"row": NaN', b"1", b"null"])
def test_odd_bodies_are_told(client, body):
    assert client.post("/api/about", content=body, headers=JSON).status_code == 400


def test_oversized_bodies_are_refused(server, client):
    large = b'{"a": "' + b"x" * 1_100_000 + b'"}'
    assert client.post("/api/about", content=large, headers=JSON).status_code == 413

    def parts():  # without a length
        for _ in range(200):
            yield b" " * 10_000

    assert client.post("/api/about", content=parts(), headers=JSON).status_code == 413
    assert client.post("/api/about", json={}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/....//app.py", "/static//etc/passwd",
        "/static/page.html", "/static/", "/people.csv", "/tok", "/static/main.js%00.css", "/api/../about", "//evil.example",
    ],
)  # fmt: skip
def test_paths_lead_nowhere(server, path):
    with socket.create_connection(("127.0.0.1", server.port)) as raw:  # as it is, without a library that tidies it up
        cookie = f"cafexai-{server.port}={server.token}"
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        raw.sendall(request.encode())
        answer = b""
        while part := raw.recv(65536):
            answer += part
    status = int(answer.split()[1])
    assert status in (404, 405, 400), answer[:200]
    assert b"import" not in answer.split(b"\r\n\r\n", 1)[1]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, "/api/about").status_code in (400, 405)


def test_every_answer_has_its_policy(server, client, stranger):
    answers = [
        client.get("/"), client.get("/static/main.js"), client.post("/api/about", json={}), client.get("/nothing"),
        client.post("/api/nothing", json={}), stranger.get("/"), client.get("/", headers={"host": "evil.example:1"}),
        client.post("/api/rows", json={"page": -1}),
    ]  # fmt: skip
    for answer in answers:
        assert re.fullmatch(POLICY, answer.headers["content-security-policy"])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    nonces = {re.fullmatch(POLICY, answer.headers["content-security-policy"])[1] for answer in answers}
    assert len(nonces) == len(answers)
    page = answers[0].text
    assert page.count(f'nonce="{re.fullmatch(POLICY, answers[0].headers["content-security-policy"])[1]}"') == 2
    assert "NONCE" not in page
    assert "//" not in page.replace("<!doctype html>", "")  # nothing from elsewhere


WRONG = [
    ("row", {"row": -1}, "row"), ("row", {"row": 10**6}, "row"), ("row", {"row": "0"}, "row"), ("row", {"row": True}, "row"),
    ("row", {"row": 0, "choice": {"c": 2}}, "c"), ("row", {"row": 0, "choice": {"c": "0.5"}}, "c"),
    ("row", {"row": 0, "choice": {"variant": "x"}}, "variant"), ("row", {"row": 0, "choice": {"target": 7}}, "target"),
    ("row", {"row": 0, "choice": {"baseline": "row:999"}}, "baseline"), ("row", {"row": 0, "choice": {"model": "x"}}, ""),
    ("row", {"row": 0, "choice": {"baseline": "/etc/passwd"}}, "baseline"),
    ("row", {"row": 0, "choice": {"target": 1, "against": 1}}, "against"),
    ("row", {"row": 0, "edits": {"cells": {"age": "old"}}}, "age"),
    ("row", {"row": 0, "edits": {"cells": {"age": 1e999}}}, "age"),
    ("row", {"row": 0, "edits": {"cells": {"job": "king"}}}, "job"), ("row", {"row": 0, "edits": {"cells": {"no": 1}}}, "no"),
    ("row", {"row": 0, "edits": {"cells": {"repaid": "yes"}}}, "repaid"), ("rows", {"by": "__class__"}, "by"),
    ("rows", {"page": -1}, "page"), ("rows", {"ranges": {"job": [0, 1]}}, "job"), ("rows", {"ranges": {"x": [0, 1]}}, "x"),
    ("rows", {"text": "x" * 300}, "text"), ("distribution", {"column": "../x"}, "column"), ("groups", {}, "column"),
    ("begin_method", {"row": 0, "method": "os.system"}, "method"), ("run", {"run": 99}, "method"),
    ("scores", {"rows": [0], "ending": "exe"}, "ending"), ("report", {"rows": []}, "rows"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "field"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_requests_are_told_with_their_field(client, name, body, field):
    answer = client.post(f"/api/{name}", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert answer.json()["field"] == field


@pytest.mark.parametrize("name", ["session", "scoring", "_rows", "begin", "__class__", "runs"])
def test_only_named_requests_are_there(client, name):
    assert client.post(f"/api/{name}", json={}).status_code == 404


def test_scripts_in_names_and_cells_are_text(client):
    about = client.post("/api/about", json={})
    assert about.headers["content-type"] == "application/json"
    assert SCRIPT in [column["name"] for column in about.json()["columns"]]
    rows = client.post("/api/rows", json={"only": {"job": ODD}}).json()
    assert rows["found"] > 0
    assert all(ODD in row["cells"] for row in rows["rows"])


def test_reports_are_downloads(client):
    answer = client.post("/api/report", json={"rows": [0, 1]})
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert SCRIPT not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_it_listens_to_this_machine_only(server):
    found = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False) if os.name == "posix" else None
    if found is None or found.returncode:
        pytest.skip("no ss")
    own = [line.split()[3] for line in found.stdout.splitlines() if line.split()[3].endswith(f":{server.port}")]
    assert own == [f"127.0.0.1:{server.port}"]


# ---- beginning and ending ----------------------------------------------------------------------------------------------


def test_token_files_are_kept_and_checked(tmp_path):
    folder = write_files(tmp_path)
    with serving(folder, *USUAL, "--token-file", "tok") as first:
        assert stat.S_IMODE((folder / "tok").stat().st_mode) == 0o600
        assert (folder / "tok").read_text().strip() == first.token
        port = first.port
        assert first.end(signal.SIGINT) == 0
    with serving(folder, *USUAL, "--token-file", "tok", port=port) as second:
        assert second.token == first.token
        assert second.end(signal.SIGTERM) == 0
    (folder / "tok").chmod(0o644)
    assert "chmod 600" in refused(folder, "--token-file", "tok")
    (folder / "empty").touch(0o600)
    assert "holds no token" in refused(folder, "--token-file", "empty")


def test_tokens_differ_from_start_to_start(server, tmp_path):
    with serving(write_files(tmp_path), *USUAL) as other:
        assert len(other.token) >= 43
        assert other.token != server.token


def test_a_port_in_use_is_told(server, tmp_path):
    assert "cannot be used" in refused(write_files(tmp_path), "--port", str(server.port))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--label", "nothing"], 2, "--label nothing: people.csv has no such column"),
        (["--c", "0,1"], 2, "the page begins with one number"),
        (["--second", "missing.csv"], 3, "missing.csv"),
        (["--target", "maybe"], 2, "--target maybe"),
    ],
)
def test_mistakes_are_one_line(tmp_path, words, code, told):
    said = refused(write_files(tmp_path), *words, code=code)
    assert told in said
    assert said.count("\n") == 1


def refused(folder, *words, code=2):
    known = [*USUAL[:4], *words]
    done = subprocess.run(
        [sys.executable, "-m", "cafexai", "explore", "shop:net", "people.csv", "--no-open", *known],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
