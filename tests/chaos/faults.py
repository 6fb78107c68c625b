"""Faults at scale: commands are killed, stopped, starved of disk and run twice, over and over.

    python tests/chaos/faults.py --faults 500 [--seed 0]        (or make chaos FAULTS=500; Linux)

After every fault, what was finished before must be there and whole. Then the same command is run again, which must end
in the files of an undisturbed run, and leave nothing else behind. Commands run in forks of this process, which has
PyTorch loaded already, so that a fault takes seconds.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import hashlib
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

LONGEST = 120.0  # seconds of any command here
STOPPED = 10.0  # seconds that SIGTERM and Ctrl-C may take on a busy machine; two on one that is not
VOLATILE = ("created", "command", "seconds", "devices")


class LostError(AssertionError):
    """Something was lost, damaged, left behind or said in the wrong way."""


def demand(condition: object, words: str) -> None:
    if not condition:
        raise LostError(words)


# ---------------------------------------------------------------------------------------------- processes


def launch(arguments: list[str], log: Path, prepare: Callable[[], None] = lambda: None, silent: bool = False) -> int:
    """Run a command in a fork. Its errors go to a file, unless it is silent, and its output to another."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        for number, file in ((1, log.with_suffix(".out")), (2, Path(os.devnull) if silent else log)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ["TMPDIR"] = str(log.parent / "tmp")
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare()
        code = _run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the command has ended
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str]) -> int:
    from classnorm.cli import main

    code, sys.argv = 0, ["classnorm", *arguments]
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    threading._shutdown()  # type: ignore[attr-defined]  # as an interpreter does at its end
    atexit._run_exitfuncs()
    return code


def ended(process: int, seconds: float = LONGEST) -> int:
    """Wait for a process; its exit code, negative for a signal."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.003)
    for other in (process, *family(process)):
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    os.waitpid(process, 0)
    raise LostError(f"does not end in {seconds:.0f} s")


def family(process: int) -> list[int]:
    """Other living processes of its session."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != process:
            with suppress(OSError, ValueError):
                state, _, _, session = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == process and state != "Z":
                    members.append(int(entry.name))
    return members


def soon(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    last = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > last:
            return False
        time.sleep(0.02)
    return True


# ---------------------------------------------------------------------------------------------- what is on disk


def stable(value: Any) -> Any:
    """A document without what differs between two runs: times, and the command line."""
    if isinstance(value, dict):
        return {key: stable(entry) for key, entry in value.items() if not key.endswith(VOLATILE)}
    return [stable(entry) for entry in value] if isinstance(value, list) else value


def content(file: Path) -> str:
    """What must be equal in two runs; of pages and pictures, that they are there."""
    import numpy as np
    from safetensors.numpy import load_file

    if file.stem.endswith(VOLATILE) or file.name.startswith("."):  # hidden: half-written, if it may be there at all
        return "there"
    if file.suffix == ".json":
        data = json.dumps(stable(json.loads(file.read_text())), sort_keys=True).encode()
    elif file.suffix == ".jsonl":
        data = json.dumps([stable(json.loads(line)) for line in file.read_text().splitlines()]).encode()
    elif file.suffix == ".npz":
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            data = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays.files))
    elif file.suffix == ".safetensors":  # the header may hold seconds
        data = b"".join(name.encode() + value.tobytes() for name, value in sorted(load_file(file).items()))
    else:
        return "there"
    return hashlib.sha256(data).hexdigest()[:16]


def snapshot(folder: Path) -> dict[str, str]:
    """Every file below a folder, and its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): content(path) for path in files}


def difference(found: dict[str, str], expected: dict[str, str]) -> str:
    names = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
    return ", ".join(
        f"{name} {'is left over' if name not in expected else 'is lost' if name not in found else 'differs'}"
        for name in sorted(names)[:4]
    )


# ---------------------------------------------------------------------------------------------- commands


@dataclass
class Job:
    """A command that writes below the folder of a case."""

    name: str
    arguments: list[str]
    """With {out} for the folder."""
    again: list[str] = field(default_factory=list)
    """Flags that continue."""
    before: list[str] | None = None
    """A command whose finished output this one replaces."""
    markers: tuple[str, ...] = ("result.json",)
    """Files that say that something is finished."""
    alike: Job | None = None
    """The same command without workers."""
    expected: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    operations: int = 0
    largest: int = 0
    """Bytes of the largest file."""

    def line(self, out: Path, again: bool = False) -> list[str]:
        return [part.replace("{out}", str(out)) for part in (*self.arguments, *(self.again if again else []))]


def jobs(root: Path) -> list[Job]:
    data = str(root / "data.npz")
    train = ["train", data, "--hidden", "16", "--epochs", "8", "--seeds", "2", "--quiet"]
    train += ["--checkpoint-every", "2", "--out", "{out}/run"]
    search = ["search", data, "--hidden", "16", "--epochs", "8", "--sampler", "grid", "--space", "lr=1e-3,1e-2,3e-2"]
    search += ["--splits", "1", "--quiet", "--out", "{out}/search", "--jobs"]
    continual = ["continual", data, "--strategy", "agem", "--tasks", "3", "--epochs", "4", "--hidden", "16", "--quiet"]
    extract = ["extract", str(root / "images"), "--encoder", "convnet", "--size", "32", "--batch-size", "2", "--quiet"]
    extract += ["--weights", str(root / "convnet.safetensors"), "--out"]
    reproduce = ["reproduce", "ns-an-cn", "--data", data, "--quick", "--epochs", "2", "--seeds", "1", "--quiet"]
    reproduce += ["--out", "{out}/reproduction", "--jobs"]
    alone = Job("search", [*search, "1"]), Job("reproduce", [*reproduce, "1"])
    return [
        Job("train", train, ["--resume"]),
        Job("train over another run", train, ["--resume"], [*train, "--lr", "0.01", "--seeds", "3"]),
        Job("continual", [*continual, "--out", "{out}/stream", "--jobs", "1"], ["--resume"]),
        Job("extract to a file", [*extract, "{out}/rows.npz"], markers=("rows.npz",)),
        Job("extract to a folder", [*extract, "{out}/rows", "--rows-per-shard", "7"], markers=("dataset.json",)),
        *alone,
        Job("search, 2 workers", [*search, "2"], ["--jobs", "1"], alike=alone[0]),
        Job("reproduce, 2 workers", [*reproduce, "2"], ["--jobs", "1"], alike=alone[1]),
    ]


def without_drawing() -> None:
    """Plots become empty files, here and in forks: they would take most of the time."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, target: Any, **settings: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"a plot")
        else:
            Path(target).write_bytes(b"a plot")

    Figure.savefig = savefig  # type: ignore[assignment]


def write_inputs(root: Path) -> None:
    import numpy as np
    from PIL import Image

    from classnorm.data import SyntheticConfig, save_bundle, synthetic

    save_bundle(synthetic(SyntheticConfig(classes=14, unseen=4, rows=140, features=8, attributes=6)), root / "data.npz")
    generator = np.random.default_rng(0)
    for number in range(30):
        file = root / "images" / f"class {number % 3}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(file)
    from safetensors.torch import save_file

    from classnorm.encoders import ConvNet

    save_file(ConvNet().state_dict(), root / "convnet.safetensors")
    arguments = [
        "train",
        str(root / "data.npz"),
        "--hidden",
        "16",
        "--epochs",
        "2",
        "--quiet",
        "--out",
        str(root / "m"),
    ]
    (root / "tmp").mkdir()
    demand(ended(launch(arguments, root / "log")) == 0, (root / "log").read_text())
    (root / "m" / "seed-0").rename(root / "model")


# ---------------------------------------------------------------------------------------------- faults


class Case:
    """One command in a folder of its own."""

    def __init__(self, job: Job, folder: Path, generator: random.Random) -> None:
        self.job, self.folder, self.random = job, folder, generator
        self.out, self.log = folder / "out", folder / "log"
        (folder / "tmp").mkdir(parents=True)
        self.out.mkdir()
        self.finished: dict[str, str] = {}
        if job.before is not None:
            self.finish([part.replace("{out}", str(self.out)) for part in job.before])
            self.finished = snapshot(self.out)

    def start(self, again: bool = False, prepare: Callable[[], None] = lambda: None, log: str = "log") -> int:
        return launch(self.job.line(self.out, again), self.folder / log, prepare)

    def finish(self, arguments: list[str]) -> None:
        code = ended(launch(arguments, self.log))
        demand(code == 0, f"exit code {code}: {self.said()}")

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def moment(self) -> None:
        time.sleep(self.random.uniform(0.0, 1.1 * self.job.seconds))

    def check_finished(self) -> None:
        """What a marker says to be finished is whole."""
        for marker in self.job.markers:
            for file in self.out.rglob(marker):
                if "checkpoint" in file.parts or ".parts" in str(file):
                    continue
                name = str(file.relative_to(self.out))
                folder, now = name.removesuffix(marker), snapshot(file.parent)
                whole = [
                    {inside.removeprefix(folder): value for inside, value in files.items() if inside.startswith(folder)}
                    for files in (self.job.expected, self.finished)
                    if name in files
                ]
                demand(any(files.items() <= now.items() for files in whole), f"{name} says finished, but is not whole")

    def continued(self) -> None:
        """The same command again ends as if there had been no fault."""
        self.check_finished()
        code = ended(launch(self.job.line(self.out, again=True), self.log))
        if code == 2 and self.job.before and "holds a finished run" in self.said():  # of those that it replaces
            code = ended(launch(self.job.line(self.out), self.log))
        demand(code == 0, f"exit code {code}: {self.said()}")
        found = snapshot(self.out)
        demand(found == self.job.expected, f"after continuing: {difference(found, self.job.expected)}")
        temporary = self.folder / "tmp"
        demand(soon(lambda: not [*temporary.iterdir()]), f"temporary files: {[p.name for p in temporary.iterdir()]}")

    def check_message(self, code: int, expected: int, start: str) -> str:
        """Exit code and one line; or success, if the fault came too late."""
        if code == 0:
            return "ended before"
        lines = self.said().splitlines()
        demand(code == expected, f"exit code {code} instead of {expected}: {self.said()}")
        demand(len(lines) == 1 and lines[0].startswith(start), f"says: {self.said()}")
        return "stopped"

    def check_alone(self, process: int) -> None:
        left = [*family(process)]
        if left:
            demand(soon(lambda: not family(process), 180), f"processes {family(process)} outlive the command")


def killed_at_a_time(case: Case) -> str:
    process = case.start()
    case.moment()
    os.kill(process, signal.SIGKILL)
    code = ended(process)
    case.check_alone(process)
    case.continued()
    return "stopped" if code else "ended before"


def killed_at_an_operation(case: Case) -> str:
    """Dies when it opens a file to write, renames, deletes or makes a folder."""
    last = case.random.randrange(1, case.job.operations + 1)
    process = case.start(prepare=lambda: count_operations(case.folder, last))
    code = ended(process)
    case.check_alone(process)
    case.continued()
    return "stopped" if code else "ended before"


def count_operations(folder: Path, last: int | None = None, report: Path | None = None) -> None:
    """Count the operations of this process that change files below a folder; die at the last, or report the count.

    The report also lists the modules that are loaded in the end.
    """
    names = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
    below, count, owner = str(folder), 0, os.getpid()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in names:
            return
        if os.getpid() != owner or not str(arguments[0]).startswith(below):
            return
        count += 1
        if count == last:
            os.kill(owner, signal.SIGKILL)

    sys.addaudithook(watch)
    if report is not None:
        atexit.register(lambda: report.write_text(json.dumps({"count": count, "modules": sorted(sys.modules)})))


def stopped_by(number: signal.Signals) -> Callable[[Case], str]:
    def fault(case: Case) -> str:
        process = case.start()
        time.sleep(0.02)
        case.moment()
        sent = time.monotonic()
        for member in (process, *(family(process) if number == signal.SIGINT else [])):  # as a terminal does
            with suppress(ProcessLookupError):
                os.kill(member, number)
        code = ended(process, STOPPED)
        if code == -number and not case.said():
            outcome = "stopped"  # before the command had begun, or after it had ended
        else:
            outcome = case.check_message(code, 128 + number, "classnorm: interrupted")
        demand(time.monotonic() - sent < STOPPED, "takes too long to stop")
        case.check_alone(process)
        case.continued()
        return outcome

    return fault


def full_disk(case: Case) -> str:
    """No file can grow beyond a limit: writes fail as on a full disk."""
    limit = int(512 * (case.job.largest / 512) ** case.random.random())
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    process = case.start(prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard)))
    outcome = case.check_message(ended(process), 2, "classnorm: error: ")
    case.continued()
    return outcome


def read_only(case: Case) -> str:
    """The output folder may not be written."""
    for path in (case.out, *(path for path in case.out.rglob("*") if path.is_dir())):
        path.chmod(0o555)
    outcome = case.check_message(ended(case.start(prepare=obey_permissions)), 2, "classnorm: error: ")
    for path in (case.out, *(path for path in case.out.rglob("*") if path.is_dir())):
        path.chmod(0o755)
    demand(outcome == "stopped", "writes to a folder that is read-only")
    demand(snapshot(case.out) == case.finished, "has changed a folder that is read-only")
    case.continued()
    return outcome


def obey_permissions() -> None:
    """Let the permissions of files count for root, too (drops CAP_DAC_OVERRIDE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for position in (0, 1, 2):
            sets[position] &= ~(1 << 1)
        libc.capset(header, sets)


def two_at_once(case: Case) -> str:
    """Two processes that write the same; which of them comes first does not matter."""
    again = case.random.random() < 0.5 and case.job.before is None
    first = case.start(again)
    time.sleep(case.random.uniform(0.0, 0.3) * case.job.seconds)
    second = case.start(again, log="log2")
    codes = [ended(first), ended(second)]
    demand(codes == [0, 0], f"exit codes {codes}: {case.said()} {(case.folder / 'log2').read_text()}")
    case.continued()
    return "stopped"


def one_killed_of_two(case: Case) -> str:
    """Of two processes that write the same, one is killed."""
    first = case.start()
    second = case.start(log="log2")
    case.moment()
    os.kill(first, signal.SIGKILL)
    ended(first)
    code = ended(second)
    demand(code == 0, f"the other ends with {code}: {(case.folder / 'log2').read_text()}")
    case.continued()
    return "stopped"


def worker_killed(case: Case) -> str:
    """A worker dies; the command goes on without it."""
    process = case.start()
    soon(lambda: len(workers(process)) > 0, 20)
    case.random.choice([lambda: None, lambda: time.sleep(case.random.uniform(0.0, 0.5 * case.job.seconds))])()
    victims = workers(process)
    for victim in victims[:1]:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    code = ended(process)
    demand(code == 0, f"exit code {code}: {case.said()}")
    case.check_alone(process)
    case.continued()
    return "stopped" if victims else "ended before"


def workers(process: int) -> list[int]:
    found = []
    for member in family(process):
        with suppress(OSError):
            words = Path(f"/proc/{member}/cmdline").read_bytes()
            if b"loky" in words and b"tracker" not in words:
                found.append(member)
    return found


# ---------------------------------------------------------------------------------------------- the server


class Client:
    """A visitor that remembers what the server has confirmed."""

    def __init__(self) -> None:
        self.key = ""
        self.classes: list[str] = []
        self.saved: list[str] = []

    def ask(self, address: str, path: str, document: Any = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} | ({"x-classnorm-session": self.key} if self.key else {})
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(address + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                self.key = response.headers.get("x-classnorm-session") or self.key
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def work(self, address: str) -> None:
        """Add classes and save models until the server is gone."""
        with suppress(OSError, ValueError):
            for number in range(1000):
                name = f"class {len(self.classes)}-{number}"
                status, _ = self.ask(address, "/classes", {"name": name, "descriptor": [0.1 * (number % 9)] * 6})
                self.classes += [name] if status == 201 else []
                if number % 5 == 4:
                    status, answer = self.ask(address, "/save", {"name": f"m{len(self.saved)}-{number}"})
                    self.saved += [answer["saved"]] if status == 201 else []
                if len(self.classes) >= 90:
                    return


def serve_arguments(root: Path, case: Path) -> list[str]:
    arguments = ["serve", str(root / "model"), "--port", "0", "--json"]
    return [*arguments, "--state", str(case / "state"), "--models", str(case / "saved")]


def served(root: Path, case: Path) -> tuple[int, str]:
    out = case / "log.out"
    out.unlink(missing_ok=True)
    process = launch(serve_arguments(root, case), case / "log", silent=True)
    demand(soon(lambda: out.exists() and "}" in out.read_text(), 60), "does not start")
    return process, str(json.loads(out.read_text())["address"])


def server_fault(kind: str) -> Callable[[Path, Path, random.Random], str]:
    """A visitor adds classes and saves models, the server ends or its disk is full; nothing confirmed may be lost."""

    def fault(root: Path, case: Path, generator: random.Random) -> str:
        from classnorm.scoring import Scorer

        (case / "tmp").mkdir(parents=True)
        client = Client()
        process, address = served(root, case)
        if kind == "full":
            limit = (generator.randrange(300, 6000), resource.getrlimit(resource.RLIMIT_FSIZE)[1])
            resource.prlimit(process, resource.RLIMIT_FSIZE, limit)
        number = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}.get(kind, signal.SIGKILL)
        killer = os.fork()
        if not killer:  # a process, since forks of a process with threads are not safe
            time.sleep(generator.uniform(0.05, 0.6))
            os.kill(process, number)
            os._exit(0)
        client.work(address)
        ended(killer)
        code = ended(process, 30)
        demand(kind in ("SIGKILL", "full") or code in (0, 128 + number, -number), f"exit code {code}")
        process, address = served(root, case)
        _, answer = client.ask(address, "/classes")
        names = {entry["class"] for entry in answer["classes"]}
        lost = [name for name in client.classes if name not in names]
        demand(not lost, f"{len(lost)} of {len(client.classes)} classes are lost: {lost[:3]}")
        for name in client.saved:
            Scorer.load(case / "saved" / name)
        if len(client.classes) < 95:
            demand(client.ask(address, "/classes", {"name": "one more", "descriptor": [0.5] * 6})[0] == 201, "no more")
        os.kill(process, signal.SIGKILL)
        ended(process)
        left = [path.name for path in (case / "state").iterdir() if path.name.startswith(".")]
        demand(not left, f"left behind: {left}")
        return "stopped" if client.classes else "ended before"

    return fault


# ---------------------------------------------------------------------------------------------- the run

FAULTS: dict[str, Callable[[Case], str]] = {
    "SIGKILL at a random time": killed_at_a_time,
    "SIGKILL at a file operation": killed_at_an_operation,
    "SIGTERM": stopped_by(signal.SIGTERM),
    "Ctrl-C": stopped_by(signal.SIGINT),
    "full disk": full_disk,
    "read-only output": read_only,
    "two processes on one folder": two_at_once,
    "one of two killed": one_killed_of_two,
    "a worker killed": worker_killed,
}
SERVER_FAULTS = {"SIGKILL at a random time": "SIGKILL", "SIGTERM": "SIGTERM", "Ctrl-C": "SIGINT", "full disk": "full"}


PARALLEL = ("SIGKILL at a random time", "SIGTERM", "Ctrl-C", "a worker killed")


def plan(commands: list[Job], faults: int, generator: random.Random) -> Iterator[tuple[Job | None, str]]:
    """Which fault happens to which command (None: the server); those that take long half as often."""
    pairs: list[tuple[Job | None, str]] = [(None, fault) for fault in SERVER_FAULTS] * 2
    for job in commands:
        has_workers = "workers" in job.name
        fitting = PARALLEL if has_workers else [fault for fault in FAULTS if fault != "a worker killed"]
        pairs += [(job, fault) for fault in fitting] * (1 if "reproduce" in job.name or has_workers else 2)
    while faults > 0:
        generator.shuffle(pairs)
        yield from pairs[:faults]
        faults -= len(pairs)


def measure(job: Job, root: Path) -> None:
    """Run a command undisturbed: what it writes, how long it takes, how often it touches files."""
    case = Case(job, root / "undisturbed" / job.name, random.Random(0))
    started, report, before = time.monotonic(), case.folder / "operations", used()
    process = case.start(prepare=partial(count_operations, case.folder, report=report))
    demand(ended(process) == 0, f"{job.name}: {case.said()}")
    told = json.loads(report.read_text())
    job.seconds, job.operations, job.expected = time.monotonic() - started, told["count"], snapshot(case.out)
    job.largest = max(file.stat().st_size for file in case.out.rglob("*") if file.is_file())
    for module in told["modules"]:
        with suppress(Exception):
            importlib.import_module(module)  # so that the next forks have it
    print(
        f"{job.name}: {used() - before:.1f} CPU s, {job.operations} operations, {len(job.expected)} files", flush=True
    )


def run(root: Path, faults: int, only: str, generator: random.Random) -> Counter[tuple[str, str, str]]:
    """Make the faults; count (command, fault, outcome)."""
    write_inputs(root)
    without_drawing()
    commands = [job for job in jobs(root) if only in job.name]
    for job in commands:
        if job.alike is None:
            measure(job, root)
        else:  # workers change nothing in the files; that they start takes seconds
            if not job.alike.expected:
                measure(job.alike, root)
            job.expected, job.seconds = job.alike.expected, 3 * job.alike.seconds + 5
    counts: Counter[tuple[str, str, str]] = Counter()
    with suppress(KeyboardInterrupt):  # then the table of what has been done
        for number, (job, fault) in enumerate(plan(commands, faults, generator)):
            if job is None and only not in "serve":
                continue
            if number % 20 == 0:
                print(f"{number} of {faults}", flush=True)
            outcome = suffer(job, fault, number, root, random.Random(generator.random()))
            counts[job.name if job else "serve", fault, outcome] += 1
    return counts


def suffer(job: Job | None, fault: str, number: int, root: Path, draw: random.Random) -> str:
    """One fault; if something is lost, the folder is kept."""
    folder = root / "cases" / str(number)
    try:
        if job is None:
            return server_fault(SERVER_FAULTS[fault])(root, folder, draw)
        return FAULTS[fault](Case(job, folder, draw))
    except Exception as error:
        print(f"LOST {job.name if job else 'serve'}, {fault} (fault {number}): {type(error).__name__}: {error}")
        kept = Path(tempfile.gettempdir()) / f"classnorm-lost-{os.getpid()}-{number}"
        shutil.copytree(folder, kept, symlinks=True)
        return "lost"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """Rows of faults, columns of commands, as Markdown; how many came in time, and how often something was lost."""
    commands, faults = (sorted({key[i] for key in counts}) for i in (0, 1))
    lines = ["| fault | " + " | ".join(commands) + " | all | lost |", "| --- |" + " ---: |" * (len(commands) + 2)]
    for fault in [*faults, "all"]:
        chosen = {key: n for key, n in counts.items() if fault in (key[1], "all")}
        cells = [sum(n for key, n in chosen.items() if key[0] == command) for command in commands]
        lost = sum(n for key, n in chosen.items() if key[2] == "lost")
        lines.append(f"| {fault} | {' | '.join(str(n or '') for n in cells)} | {sum(cells)} | {lost} |")
    late = sum(n for key, n in counts.items() if key[2] == "ended before")
    return "\n".join([*lines, "", f"{late} faults came after the command had ended."])


def used() -> float:
    """CPU seconds of this process and its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only commands with this word in their name")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a process with threads cannot be forked safely
    folder = Path(tempfile.mkdtemp(prefix="classnorm-chaos-"))  # no TemporaryDirectory: forks would delete it at exit
    os.environ["CLASSNORM_CACHE"] = str(folder / "cache")
    try:
        counts = run(folder, options.faults, options.only, random.Random(options.seed))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{table(counts)}\n{used() / 60:.1f} CPU minutes")
    return int(any(key[2] == "lost" for key in counts))


if __name__ == "__main__":
    sys.exit(main())
