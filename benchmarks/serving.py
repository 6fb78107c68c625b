"""Load on a server on loopback: 50 clients, each with a connection of its own, for a bounded time.

``python benchmarks/serving.py`` serves kernel prototypes on glyphs-light and sends, for a minute each,

- requests of 64 rows as npy, compared with `Scorer.top` on the same 64 rows in a loop (prototypes cached in both): rows
  per second, and per second of the processor of the server, which other work on the machine hardly affects;
- requests of a single row: requests per second, and the quantiles of their time;
- single rows, while the server is killed (SIGKILL) and started again in turn, and visitors save models: answers, errors
  by kind, and whether every saved model can be loaded.

The resident memory of the server is read before and after each. The clients are one process that speaks plain HTTP/1.1,
so as to leave the processor to the server.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from classnorm.data import load
from classnorm.errors import ClassNormError
from classnorm.scoring import Scorer, fit

ROWS, TOP = 64, 3
HOST = "127.0.0.1"


class Server:
    """`classnorm serve` in a process of its own."""

    def __init__(self, folder: Path, model: Path, port: int = 0) -> None:
        self.folder, self.model, self.port = folder, model, port

    def start(self) -> None:
        arguments = ["serve", str(self.model), "--port", str(self.port), "--state", str(self.folder / "state")]
        arguments += ["--models", str(self.folder / "saved")]
        log = (self.folder / "log").open("ab")
        start = log.tell()
        self.process = subprocess.Popen([sys.executable, "-m", "classnorm", *arguments], stderr=log)
        while True:
            text = (self.folder / "log").read_bytes()[start:]
            if b"Application startup complete" in text:
                break
            if self.process.poll() is not None:
                raise SystemExit(text.decode())
            time.sleep(0.05)
        if not self.port:
            self.port = int(text.split(b"serving at http://127.0.0.1:")[1].split()[0])

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(kind)
        self.process.wait()

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def request(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def npy(rows: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(length)


async def ask(port: int, messages: list[bytes], until: float, seen: Counter[str], times: list[float]) -> None:
    """One client: request after request, connecting again after an error."""
    turn = 0
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            while time.monotonic() < until:
                started = time.perf_counter()
                writer.write(messages[turn % len(messages)])
                turn += 1
                status, body = await answer(reader)
                times.append(time.perf_counter() - started)
                seen[str(status)] += 1
                if status == 200:
                    assert len(json.loads(body)["predictions"]) > 0 if turn % 50 == 0 else body[-1:] == b"}"
            writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            seen[type(error).__name__] += 1
            await asyncio.sleep(0.05)


def load_for(port: int, messages: list[bytes], clients: int, seconds: float) -> tuple[Counter[str], list[float], float]:
    seen: Counter[str] = Counter()
    times: list[float] = []

    async def all_clients() -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(ask(port, messages, until, seen, times) for _ in range(clients)))

    started = time.perf_counter()
    asyncio.run(all_clients())
    return seen, times, time.perf_counter() - started


def direct(scorer: Scorer, batches: list[np.ndarray], seconds: float) -> tuple[float, float]:
    """Rows per second, and per second of the processor, of `Scorer.top` in a loop."""
    scorer.top(batches[0], TOP)
    started, cpu, calls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds:
        scorer.top(batches[calls % len(batches)], TOP)
        calls += 1
    return ROWS * calls / (time.perf_counter() - started), ROWS * calls / (time.process_time() - cpu)


def show(title: str, server: Server, messages: list[bytes], arguments: argparse.Namespace, rows: int) -> float:
    load_for(server.port, messages, arguments.clients, 2.0)  # caches, threads
    before, cpu = server.megabytes, server.cpu_seconds
    seen, times, seconds = load_for(server.port, messages, arguments.clients, arguments.seconds)
    cpu = server.cpu_seconds - cpu
    quantiles = "  ".join(f"p{100 * q:g} {1000 * np.quantile(times, q):.1f} ms" for q in (0.5, 0.99, 0.999))
    print(f"{title}: {len(times) / seconds:.0f} requests/s, {rows * len(times) / seconds:.0f} rows/s  {quantiles}")
    print(f"  answers {dict(seen)}; server: {cpu:.1f} CPU s in {seconds:.1f} s, ", end="")
    print(f"{1e3 * cpu / len(times):.3f} CPU ms per request; memory {before:.0f} → {server.megabytes:.0f} MB")
    return rows * len(times) / seconds if arguments.wall else rows * len(times) / cpu


def killed(server: Server, messages: list[bytes], arguments: argparse.Namespace) -> None:
    """Kill and start the server in turn while clients ask and save."""
    counts: dict[str, int] = {}

    async def run() -> None:
        seen: Counter[str] = Counter()
        until = time.monotonic() + arguments.seconds
        clients = [ask(server.port, messages, until, seen, []) for _ in range(arguments.clients - 1)]
        saves = [request("/save", json.dumps({"name": f"m{i}"}).encode(), "application/json") for i in range(90)]
        tasks = [asyncio.create_task(task) for task in (*clients, ask(server.port, saves, until, seen, []))]
        kills = 0
        while time.monotonic() < until - 3:
            await asyncio.sleep(np.random.default_rng(kills).uniform(0.5, 2.0))
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            await asyncio.to_thread(server.start)
            kills += 1
        await asyncio.gather(*tasks)
        counts.update(seen, kills=kills)

    asyncio.run(run())
    whole = damaged = 0
    for folder in (server.folder / "saved").glob("[!.]*"):
        try:
            Scorer.load(folder)
            whole += 1
        except ClassNormError:
            damaged += 1
    print(f"killed and started again: {counts}; saved models: {whole} whole, {damaged} damaged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--wall", action="store_true", help="compare wall-clock time, on an idle machine")
    parser.add_argument("--parts", nargs="+", default=["batches", "rows", "kills"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load("glyphs-light")
    rng = np.random.default_rng(0)
    batches = [data.features[np.sort(rng.choice(data.n_rows, ROWS, replace=False))] for _ in range(50)]
    with tempfile.TemporaryDirectory() as name:
        scorer = fit(data, method="kernel")
        server = Server(Path(name), scorer.save(Path(name) / "letters"))
        server.start()
        try:
            if "batches" in arguments.parts:
                kind, path = "application/x-npy", f"/predict?top={TOP}"
                rate = show("64 rows", server, [request(path, npy(rows), kind) for rows in batches], arguments, ROWS)
                wall, cpu = direct(scorer, batches, min(10.0, arguments.seconds))
                share = rate / (wall if arguments.wall else cpu)
                print(f"  Scorer.top directly: {wall:.0f} rows/s, {cpu:.0f} rows per CPU s; the server has {share:.0%}")
            single = [request(f"/predict?top={TOP}", npy(rows[:1]), "application/x-npy") for rows in batches]
            if "rows" in arguments.parts:
                show("single rows", server, single, arguments, 1)
            if "kills" in arguments.parts:
                killed(server, single, arguments)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
