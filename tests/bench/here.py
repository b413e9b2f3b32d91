"""This machine as a warm node over OpenSSH: how soon a command runs, how fast its log arrives."""

import getpass
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.activities.sshd import Sshd
from tests.bench.measure import RUNS, Row, ms, share_below
from tests.bench.stack import Bench, stack
from tests.lab.waiting import wait_until

STARTS = 15
LINES = 200
LOG_MIB = 256
RUNNING_AIM_S = 0.5
THROUGHPUT_AIM = 0.7


def rows() -> list[Row]:
    """A sshd of our own on the loopback, in a folder that goes with the run."""
    with stack() as bench, _this_machine(bench) as server:
        _run(bench, "true")
        return [_running_row(bench), _line_row(bench), _throughput_row(bench, server)]


@contextmanager
def _this_machine(bench: Bench) -> Iterator[Sshd]:
    folder = bench.running.home.parent / "sshd"
    server = Sshd(folder)
    public = bench.join_token()["ssh_public_key"]
    join_file = bench.running.home.parent / "node" / "join"
    join_file.parent.mkdir(parents=True, exist_ok=True)
    join_file.write_text(f"{bench.running.url} {bench.region_id} -\n")
    join_file.chmod(0o600)
    with (folder / "authorized_keys").open("a") as file:
        file.write(f"{public}\n")
    server.max_sessions = 100
    server.start()
    try:
        bench.join([_machine(server)])
        yield server
    finally:
        server.stop()


def _machine(server: Sshd) -> dict[str, Any]:
    public = server.host_keys[0].with_suffix(".pub").read_text().split()[:2]
    return {
        "minion_id": server.fingerprint(),
        "host_public_key": " ".join(public),
        "port": server.port,
        "user": getpass.getuser(),
    }


def _run(bench: Bench, command: str) -> str:
    """Submit a job and see it finished. The path of it."""
    job = f"/v1/jobs/{bench.platform.post('/v1/jobs', bench.job(command))['id']}"
    bench.platform.until_status(job, "finished", limit_s=300)
    return job


def _running_row(bench: Bench) -> Row:
    """By the machine's clock, which is ours as well."""
    times_s = []
    steps_s: dict[str, list[float]] = {}
    for _ in range(STARTS):
        submitted = time.time()
        job = _run(bench, "date +%s.%N")
        times_s.append(float(bench.platform.log(job)) - submitted)
        for event in bench.platform.items(f"{job}/events"):
            at = datetime.fromisoformat(event["at"]).timestamp()
            steps_s.setdefault(event["type"], []).append(at - submitted)
    p50_s = statistics.median(times_s)
    steps = [
        f"{type_.removeprefix('job.')} {ms(statistics.median(steps_s[type_]))}"
        for type_ in ("job.waiting", "job.placed", "job.staging")
    ]
    return Row(
        "submit → command running on a warm node, p50",
        ms(p50_s),
        f"{', '.join(steps)}; slowest of {len(times_s)}: {ms(max(times_s))}",
        "< 500 ms",
        p50_s < RUNNING_AIM_S,
    )


def _line_row(bench: Bench) -> Row:
    """Each line says when it was printed; it is read from the stream that a person follows."""
    count = LINES
    command = f"for i in $(seq {count}); do date +%s.%N; sleep 0.05; done"
    job = f"/v1/jobs/{bench.platform.post('/v1/jobs', bench.job(command))['id']}"
    delays_s: list[float] = []
    rest = ""
    with bench.platform.stream(f"{job}/logs") as told:
        for event in told:
            if event.type == "end" or len(delays_s) == count:
                break
            now = time.time()
            *lines, rest = (rest + json.loads(event.text)["text"]).split("\n")
            delays_s += [now - float(line) for line in lines]
    bench.platform.until_status(job, "finished", limit_s=120)
    p50_s, p95_s = share_below(delays_s, 0.5), share_below(delays_s, 0.95)
    return Row(
        f"log: line printed → at the reader, p50 and p95 of {len(delays_s)}",
        f"{ms(p50_s)}, {ms(p95_s)}",
    )


def _throughput_row(bench: Bench, server: Sshd) -> Row:
    size = LOG_MIB << 20
    source = bench.running.home.parent / "source"
    subprocess.run(
        f"head -c {size * 3 // 4} /dev/urandom | base64 -w 120 | head -c {size} > {source}",
        shell=True,
        check=True,
    )
    in_turns = [
        (_timed_s(_ssh(server, f"cat {source}")), _stored_s(bench, source, size))
        for _ in range(RUNS)
    ]
    cat_s, log_s = (min(times_s) for times_s in zip(*in_turns, strict=True))
    ratio = cat_s / log_s
    return Row(
        f"one job's log of {size >> 20} MiB, to its last byte in the store",
        f"{size / log_s / 2**20:.0f} MiB/s, {ratio:.2f} ×",
        f"ssh host cat: {size / cat_s / 2**20:.0f} MiB/s",
        "≥ 0.7 ×",
        ratio >= THROUGHPUT_AIM,
    )


def _ssh(server: Sshd, command: str) -> list[str]:
    return [
        "ssh", "-F", "none", "-p", str(server.port), "-i", str(server.client_key),
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
        "LogLevel=ERROR", "127.0.0.1", command,
    ]  # fmt: skip


def _timed_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _stored_s(bench: Bench, source: Path, size: int) -> float:
    """Seconds from the log's first stored byte until all of it is stored."""
    command = f"cat {source}"
    job_id = bench.platform.post("/v1/jobs", bench.job(command))["id"]
    folder = bench.running.home / "storage" / "logs" / job_id
    wait_until(lambda: _stored_bytes(folder) > 0, "the log begins", 60)
    started, before = time.perf_counter(), _stored_bytes(folder)
    wait_until(lambda: _stored_bytes(folder) >= size, "the log is stored", 300)
    seconds = time.perf_counter() - started
    bench.platform.until_status(f"/v1/jobs/{job_id}", "finished", limit_s=300)
    return seconds * size / (size - before)


def _stored_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))
