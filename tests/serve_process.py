"""``cafexai serve`` in a process of its own, and a client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def server(folder, *words, meanwhile=lambda process: None):
    """``cafexai serve`` until the end of the block; ``meanwhile`` is called again and again until it answers."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "cafexai", "serve", *words, "--port", str(port)],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            meanwhile(process)
            time.sleep(0.1)
        assert process.poll() is None, process.stderr.read()
        yield port, process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = json.dumps(body) if isinstance(body, (dict, list)) else body
    connection.request(method, path, sent, {"Content-Type": "application/json", **headers} if sent is not None else headers)
    answer = connection.getresponse()
    told = answer.read().decode()
    connection.close()
    return answer.status, json.loads(told) if "json" in answer.getheader("content-type", "") else told
