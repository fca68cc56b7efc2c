"""Single rows over HTTP: how long an answer takes at a steady rate of requests.

    python benchmarks/serve.py [--rate 200] [--seconds 60] [--slow 10000] [--drain] [--workers 1]

The server explains a 54-256x4-7 network in a process of its own; this one asks. Time counts from when a request was due, not
from when it could be sent, so that a server that lags behind is not spared. With --slow so many connections send half a request
and wait, while others ask; and a body of 16 MB is sent. With --drain the server gets SIGTERM in the middle of 10 s of requests.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import http.client
import json
import os
import random
import resource
import signal
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

KIND = "Content-Type: application/json\r\n"


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
        head = f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{KIND}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        top = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(top.partition("content-length:")[2].split("\r\n")[0])
        await reader.readexactly(length)
        if "connection: close" in top:
            writer.close()
        else:
            self.free.append((reader, writer, time.monotonic()))
        return int(top.split()[1])


async def steady(port, rate, seconds, process):
    """Every request at its time; how long each took, what the answers were, and the memory of the server every 10 s."""
    client, chance, spent, states, sizes = Client(port), random.Random(0), [], [], []
    bodies = [json.dumps({"rows": [[chance.gauss(0, 1) for _ in range(54)]]}).encode() for _ in range(200)]

    async def one(due, body):
        try:
            states.append(await client.ask(body))
        except (OSError, asyncio.IncompleteReadError):
            states.append(0)
        spent.append(time.perf_counter() - due)

    for _ in range(50):
        await client.ask(bodies[0])
    begin, tasks = time.perf_counter(), []
    for place in range(int(rate * seconds)):
        due = begin + place / rate
        if place % int(10 * rate) == 0:
            sizes.append(memory(process))
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(one(due, bodies[place % len(bodies)])))
    await asyncio.gather(*tasks)
    return sorted(spent), states, time.perf_counter() - begin, [*sizes, memory(process)]


async def drained(port, server, rate, seconds=10):
    """SIGTERM after a third of the time: every request that found a listener must have its answer. Counted by status."""
    chance, told = random.Random(0), collections.Counter()
    body = json.dumps({"rows": [[chance.gauss(0, 1) for _ in range(54)]]}).encode()
    client = Client(port)

    async def one():
        try:
            told[await client.ask(body)] += 1
        except ConnectionRefusedError:
            told["not listening"] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            told[f"lost, {type(error).__name__}"] += 1

    begin, tasks = time.perf_counter(), []
    for place in range(int(rate * seconds)):
        if place == int(rate * seconds) // 3:
            server.terminate()
        if (left := begin + place / rate - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(one()))
    await asyncio.gather(*tasks)
    code = server.wait(60)
    print(f"SIGTERM after {seconds / 3:.1f} of {seconds} s, {rate:g} requests a second: {dict(told)}; ended with {code}")


def memory(process):
    """Resident memory in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


async def besieged(port, count):
    """Connections that send half a request and wait: how long others wait for their answer, and when all of them are closed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    body = json.dumps({"rows": [[0.5] * 54]}).encode()
    begin, open_now, asked = time.perf_counter(), [0], []

    async def slow():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        open_now[0] += 1
        with contextlib.suppress(OSError):
            head = f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{KIND}Content-Length: 5000\r\n\r\n"
            writer.write(head.encode() + b"{")
            await reader.read()
        open_now[0] -= 1
        writer.close()

    async def others(over):
        while not over.is_set():
            sent = time.perf_counter()
            try:
                state = await Client(port).ask(body)
            except (OSError, asyncio.IncompleteReadError):
                state = 0
            asked.append((time.perf_counter() - sent, state))
            await asyncio.sleep(0.1)

    over = asyncio.Event()
    asking = asyncio.create_task(others(over))
    tasks = []
    for place in range(count):
        tasks.append(asyncio.create_task(slow()))
        if place % 100 == 99:
            await asyncio.sleep(0.02)
    made = time.perf_counter() - begin
    results = await asyncio.gather(*tasks, return_exceptions=True)
    over.set()
    await asking
    refused = sum(isinstance(result, OSError) for result in results)
    took = time.perf_counter() - begin
    print(f"{count} slow connections in {made:.1f} s: {refused} refused, all others closed after {took:.1f} s")
    good = [spent for spent, state in asked if state == 200]
    print(f"meanwhile {len(asked)} requests, {len(good)} answered with 200, the longest after {max(good):.2f} s")


def large(port):
    """What is said to a body of 16 MB."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.suppress(OSError):  # it stops listening
        connection.request("POST", "/v1/explain", b" " * (16 << 20), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    print(f"a body of 16 MB: {answer.status} {answer.read().decode()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends as well
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mlp.py").write_text(CODE)
        words = [sys.executable, "-m", "cafexai", "serve", "mlp:network", "--port", str(port), "--workers", str(given.workers)]
        server = subprocess.Popen(words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            if given.slow:
                asyncio.run(besieged(port, given.slow))
                large(port)
            spent, states, took, sizes = asyncio.run(steady(port, given.rate, given.seconds, server.pid))
            if given.drain:
                asyncio.run(drained(port, server, given.rate))
        finally:
            server.terminate()
            server.wait()
    by_state = dict(collections.Counter(states))  # 0: no answer
    print(f"{len(states)} requests in {took:.1f} s ({len(states) / took:.0f} per second), by status: {by_state}")
    middle, most = spent[len(spent) // 2], spent[int(len(spent) * 0.99)]
    print(f"memory every 10 s: {', '.join(f'{size:.0f}' for size in sizes)} MB")
    print(f"median {middle * 1000:.1f} ms, 99th percentile {most * 1000:.1f} ms, longest {spent[-1] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
