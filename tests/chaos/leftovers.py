"""What must be gone once every job has ended: rows, workflows, processes, folders."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from temporalio.client import Client

RUNS = "var/lib/baseload/runs"
OF_SESSIONS = (b"run_command", b"connect_port")
"""What the agent is asked for a session."""
HIDING = b"sleep 7777"
"""What hides from its supervisor, without a mark in its environment."""
ESTABLISHED = "01"
_NONE_LEFT = {
    "live allocations": "SELECT id, job_id FROM allocations WHERE released_at IS NULL",
    "live GPU allocations": "SELECT * FROM gpu_allocations WHERE released_at IS NULL",
    "reserved places": "SELECT id, name, reserved_cpu_count, reserved_memory_bytes FROM nodes "
    "WHERE reserved_cpu_count != 0 OR reserved_memory_bytes != 0",
    "undelivered requests": "SELECT resource_id, verb FROM outbox WHERE delivered_at IS NULL",
    "running meters": "SELECT job_id, worker, attempt FROM usage_meters WHERE running",
    "open jobs": "SELECT id, status FROM jobs WHERE status NOT IN "
    "('finished', 'failed', 'canceled', 'stopped', 'archived', 'removing')",
    "transactions that do not balance": "SELECT transaction_id FROM ledger_postings "
    "GROUP BY transaction_id HAVING SUM(amount_microcredits) != 0",
    "balances that are not their sum": "SELECT name FROM ledger_accounts WHERE "
    "balance_microcredits != (SELECT COALESCE(SUM(amount_microcredits), 0) FROM ledger_postings "
    "WHERE ledger_account = name)",
}


def rows_left(home: Path) -> Iterator[str]:
    """What the database still holds."""
    with closing(sqlite3.connect(f"file:{home}/baseload.db?mode=ro", uri=True)) as database:
        yield from rows_left_of(lambda query: database.execute(query).fetchall())


def rows_left_of(rows: Callable[[str], list[Any]]) -> Iterator[str]:
    """What a database still holds that answers queries so."""
    for what, query in _NONE_LEFT.items():
        for row in rows(query):
            yield f"{what}: {row}"


async def workflows_left(temporal: Client) -> list[str]:
    """Open workflows of jobs."""
    query = "ExecutionStatus = 'Running'"
    found = [one.id async for one in temporal.list_workflows(query)]
    return [f"open workflow: {name}" for name in found if name.startswith("job/")]


def orders_left(home: Path) -> Iterator[str]:
    """Sealed work orders in the store."""
    for path in (home / "storage/orders").rglob("*"):
        if path.is_file():
            yield f"work order: {path.relative_to(home)}"


def processes_left(name: str, pids: set[int]) -> Iterator[str]:
    """Processes of runs on a machine."""
    for pid in pids:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if b"BASELOAD_RUN_ID=" in environment or any(
            word in command for word in (HIDING, *OF_SESSIONS)
        ):
            yield f"{name}: process {pid}: {command.decode(errors='replace')[:200]}"


def connections_left(pid: int | None, url: str) -> Iterator[str]:
    """Trunks and sessions: connections of the worker with this process id to the API."""
    port = f"{int(url.rpartition(':')[2]):04X}"
    if pid is None:
        return
    own = {link for link in _links(Path(f"/proc/{pid}/fd")) if link.startswith("socket:")}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if remote.endswith(f":{port}") and state == ESTABLISHED and f"socket:[{rest[5]}]" in own:
            yield f"a connection of the worker to the API: {local} to {remote}"


def _links(folder: Path) -> Iterator[str]:
    for each in folder.iterdir():
        try:
            yield str(each.readlink())
        except OSError:
            continue


def job_of(folder: Path) -> str:
    """The job whose run has this folder."""
    return "-".join(folder.name.split("-")[:2])


def folders_left(name: str, disk: Path) -> Iterator[str]:
    """Run folders on a machine."""
    for folder in sorted((disk / RUNS).iterdir()):
        yield f"{name}: folder {folder.name}: {sorted(one.name for one in folder.iterdir())}"


def beats(disk: Path) -> dict[str, int | None]:
    """The whole seconds that each started and unfinished run on a disk has written down last."""
    found: dict[str, int | None] = {}
    for folder in (disk / RUNS).iterdir():
        if (folder / "process.json").exists() and not (folder / "exit.json").exists():
            beat = folder / "beat.json"
            found[folder.name] = (
                int(json.loads(beat.read_text())["elapsed_s"]) if beat.exists() else 0
            )
    return found
