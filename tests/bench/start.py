"""Starting every process of ours, what it holds while nothing happens, and stopping it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.machine import MIB, memory_bytes
from tests.bench.measure import Row, best_s, ms
from tests.temporal_server import CHECKOUT, TemporalServer

KINDS = {"api": "API", "main": "worker", "planning": "planning worker"}
SETTLED_S = 5.0
START_AIM_S = 3.0
STOP_AIM_S = 10.0
MEMORY_AIM_BYTES = 400 * MIB
HELP_AIM_S = 0.15


def rows() -> list[Row]:
    """Each process thrice alone, then all of them together."""
    with tempfile.TemporaryDirectory() as folder:
        # As `make up` starts it: the tests' servers collect their garbage more rarely.
        server = TemporalServer(Path(folder), schedules=True, environment={})
        server.start()
        try:
            lives = {kind: [_life(kind, folder, server) for _ in range(4)] for kind in KINDS}
            memory = _idle(folder, server)
        finally:
            server.stop()
    starts_s = {kind: min(start for start, _ in each[1:]) for kind, each in lives.items()}
    stop_s = max(stop for each in lives.values() for _, stop in each)
    bare_s = best_s(lambda: subprocess.run([sys.executable, "-c", ""], check=True))
    return [
        *(_start_row(kind, start_s, bare_s) for kind, start_s in starts_s.items()),
        Row("stop of a process, the slowest", ms(stop_s), "", "< 10 s", stop_s < STOP_AIM_S),
        _memory_row(memory),
        _help_row(bare_s),
    ]


def _start_row(kind: str, seconds: float, bare_s: float) -> Row:
    beside = f"python -c '': {ms(bare_s)}"
    return Row(f"start of the {KINDS[kind]}", ms(seconds), beside, "< 3 s", seconds < START_AIM_S)


def _memory_row(memory: dict[str, int]) -> Row:
    total = sum(memory.values())
    parts = ", ".join(f"{name} {size / MIB:.0f}" for name, size in memory.items())
    return Row(
        "memory of all processes, idle",
        f"{total / MIB:.0f} MiB",
        parts,
        "< 400 MB",
        total < MEMORY_AIM_BYTES,
    )


def _help_row(bare_s: float) -> Row:
    command = [str(Path(sys.executable).with_name("baseload")), "--help"]
    seconds = best_s(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), runs=10
    )
    beside = f"python -c '': {ms(bare_s)}"
    return Row("baseload --help", ms(seconds), beside, "< 150 ms", seconds < HELP_AIM_S)


def _life(kind: str, home: str, server: TemporalServer) -> tuple[float, float]:
    """Seconds until it serves, and until it has left."""
    started = time.monotonic()
    with _running(kind, home, server) as process:
        served_s = time.monotonic() - started
        stopped = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return served_s, time.monotonic() - stopped


def _idle(home: str, server: TemporalServer) -> dict[str, int]:
    with (
        _running("api", home, server) as api,
        _running("main", home, server) as worker,
        _running("planning", home, server) as planning,
    ):
        time.sleep(SETTLED_S)
        found = {"API": api.pid, "worker": worker.pid, "planning": planning.pid}
        found["Temporal"] = server.pid
        return {name: memory_bytes(pid) for name, pid in found.items()}


@contextmanager
def _running(kind: str, home: str, server: TemporalServer) -> Iterator[subprocess.Popen[bytes]]:
    """A process from the moment when it serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "workers", kind],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "BASELOAD_HOME": f"{home}/home",
            "BASELOAD_TEMPORAL_ADDRESS": server.address,
            "BASELOAD_API": "127.0.0.1:0",
        },
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = b""
        while b"serves" not in said:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError(f"{kind} has ended: {said.decode()}")
            said += line
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        assert process.stderr is not None
        process.stderr.close()
