"""The explorer as a user starts it, in a process of its own, on files of its own."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import nn

from cafexai import Schema

CODE = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

class Slow(nn.Sequential):
    def forward(self, x):
        import time
        time.sleep(0.05)
        return super().forward(x)

def slow():
    return Slow(*net())
"""
SCRIPT = "<script>window.hacked=1</script>"
ODD = '<img src=x onerror="window.hacked=1">'
ROWS = 120


def table():
    """People: numbers, a column whose name is a script, a category that is one, and what is true."""
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(18, 80, ROWS),
            "income": random.lognormal(1, 0.5, ROWS).round(2),
            SCRIPT: random.normal(size=ROWS).round(3),
            "job": random.choice(["nurse", "cook", ODD], ROWS),
            "city": random.choice(["Rome", "Oslo", "Lima"], ROWS),
            "repaid": random.choice(["yes", "no"], ROWS),
        }
    )


def write_files(folder):
    """Code, weights, schema and tables."""
    (folder / "shop.py").write_text(CODE)
    frame = table()
    frame.to_csv(folder / "people.csv", index=False)
    frame.assign(income=frame["income"] / 2)[:50].to_csv(folder / "later.csv", index=False)
    schema = Schema.from_frame(frame.drop(columns="repaid"), one_hot=True, classes=["no", "yes"], probability="softmax")
    schema.write(folder / "schema.toml")
    save_file(network().state_dict(), folder / "net.safetensors")
    return folder


def network():
    """The network of ``shop:net``, with weights that are always the same; inputs are not scaled, so that the first is."""
    torch.manual_seed(3)
    sizes = ((9, 16), (16, 16), (16, 2))
    first, second, last = (nn.Linear(*size, dtype=torch.float32) for size in sizes)
    made = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    with torch.no_grad():
        made[0].weight[:, 0] /= 20
    return made


def free_port():
    """One that nobody uses."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


class Server:
    """A running explorer."""

    def __init__(self, folder, *words, port=None, model="shop:net", data="people.csv"):
        self.port = port or free_port()
        command = [sys.executable, "-m", "cafexai", "explore", model, data, "--port", str(self.port), "--no-open", *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.said = []
        while True:
            self.said.append(self.lines.get(timeout=120))
            assert self.said[-1], self.said
            if found := re.search(r"(http://\S+)\?token=(\S+)", self.said[-1]):
                self.root, self.token = found[1], found[2]
                break

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")  # it has ended

    @property
    def url(self):
        return f"{self.root}?token={self.token}"

    @property
    def cookie(self):
        return {f"cafexai-{self.port}": self.token}

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def serving(folder, *words, **options):
    """A server that ends with the test."""
    server = Server(folder, *words, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


USUAL = ("--weights", "net.safetensors", "--schema", "schema.toml", "--label", "repaid", "--second", "later.csv")
