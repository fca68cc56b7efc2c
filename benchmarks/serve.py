"""Single rows over HTTP: how long an answer takes at a steady rate of requests.

    python benchmarks/serve.py [--rate 200] [--seconds 60]

The server explains a 54-256x4-7 network in a process of its own; this one asks. Time counts from when a request was due, not
from when it could be sent, so that a server that lags behind is not spared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CODE = """
from torch import nn

def network():
    layers = [nn.Linear(54, 256), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 7))
"""


class Client:
    """Connections that are used again."""

    def __init__(self, port):
        self.port, self.free = port, []

    async def ask(self, body):
        reader, writer, last = self.free.pop() if self.free else (None, None, 0.0)
        if time.monotonic() - last > 2:  # the server closes what has rested for long
            for *_, old, _ in [*self.free, *([(reader, writer, last)] if writer else [])]:
                old.close()
            self.free = []
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        top = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(top.partition("content-length:")[2].split("\r\n")[0])
        await reader.readexactly(length)
        self.free.append((reader, writer, time.monotonic()))
        return int(top.split()[1])


async def steady(port, rate, seconds):
    """Every request at its time; how long each took, and what the answers were."""
    client, chance, spent, states = Client(port), random.Random(0), [], []
    bodies = [json.dumps({"rows": [[chance.gauss(0, 1) for _ in range(54)]]}).encode() for _ in range(200)]

    async def one(due, body):
        states.append(await client.ask(body))
        spent.append(time.perf_counter() - due)

    for _ in range(50):
        await client.ask(bodies[0])
    begin, tasks = time.perf_counter(), []
    for place in range(int(rate * seconds)):
        due = begin + place / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(one(due, bodies[place % len(bodies)])))
    await asyncio.gather(*tasks)
    return sorted(spent), states, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mlp.py").write_text(CODE)
        words = [sys.executable, "-m", "cafexai", "serve", "mlp:network", "--port", str(port)]
        server = subprocess.Popen(words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            spent, states, took = asyncio.run(steady(port, given.rate, given.seconds))
        finally:
            server.terminate()
            server.wait()
    good = states.count(200)
    print(f"{len(states)} requests in {took:.1f} s ({len(states) / took:.0f} per second), {good} answered with 200")
    middle, most = spent[len(spent) // 2], spent[int(len(spent) * 0.99)]
    print(f"median {middle * 1000:.1f} ms, 99th percentile {most * 1000:.1f} ms, longest {spent[-1] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
