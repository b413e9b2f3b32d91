"""`baseload top`: what runs now, what it uses and what it costs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import (
    bytes_text,
    console_of,
    credits_text,
    duration_text,
    moment_text,
    per_hour_text,
    printable,
    table_of,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

app = new_app()
LEAST_S = 2.0
JOBS = (
    "job", "worker", "status", "node", "elapsed", "cpu", "of cpus", "memory", "of memory", "gpus",
    "gpu memory", "rate",
)  # fmt: skip
NODES = ("node", "status", "workers", "cpus held", "memory held", "gpus held", "gpu use")


@command(app)
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="print it once, as into a file")] = False,
    every: Annotated[float, typer.Option(help="seconds between two looks")] = 5.0,
) -> None:
    """Show what runs now, what it uses and what an hour of it costs; Ctrl-C ends it.

    CPU is in percent of one core. Nodes measure every ten seconds; `-` was not measured lately.
    """
    if session.screen.as_json:
        session.screen.json(session.get("/v1/utilisation"))
        return
    if once or not sys.stdout.isatty():
        _print(session, session.get("/v1/utilisation"))
        return
    _refresh(session, max(LEAST_S, every))


def _print(session: Session, found: Document) -> None:
    session.screen.result(_summary(found))
    for columns, rows in _tables(found):
        session.screen.result("")
        session.screen.table(columns, rows)


def _refresh(session: Session, every_s: float) -> None:
    from rich.live import Live

    with Live(console=console_of(sys.stdout), screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(session.get("/v1/utilisation")), refresh=True)
            time.sleep(every_s)


def _drawn(found: Document) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    tables = [table_of(columns, rows) for columns, rows in _tables(found)]
    return Group(Text(printable(_summary(found))), *tables)


def _summary(found: Document) -> str:
    jobs = len({worker["job_id"] for worker in found["workers"]})
    held = sum(len(worker["gpus"]) for worker in found["workers"])
    more = "" if found["is_whole"] else "; there are more, the newest are shown"
    rate = credits_text(found["microcredits_per_hour"])
    return (
        f"{moment_text(found['at'])} UTC: jobs running: {jobs}, GPUs held: {held}, "
        f"{rate} credits per hour{more}"
    )


def _tables(found: Document) -> list[tuple[tuple[str, ...], list[list[Any]]]]:
    jobs = [_worker(each) for each in found["workers"]]
    nodes = [_node(each) for each in found["nodes"]]
    return [(JOBS, jobs), (NODES, nodes)] if nodes else [(JOBS, jobs)]


def _worker(each: Document) -> list[Any]:
    return [
        each["job_name"],
        each["worker"],
        each["status"],
        each["node_name"] or each["node_id"],
        duration_text(each["elapsed_s"]),
        _percent(each["cpu_percent"]),
        each["cpu_count"],
        bytes_text(each["memory_bytes"]),
        bytes_text(each["memory_limit_bytes"] or None),
        _gpu_percents(each["gpus"]),
        _gpu_memory(each["gpus"]),
        per_hour_text(each["microcredits_per_hour"]) if each["worker"] == 0 else None,
    ]


def _node(each: Document) -> list[Any]:
    reserved = bytes_text(each["reserved_memory_bytes"])
    return [
        each["name"],
        each["status"],
        each["worker_count"],
        f"{each['reserved_cpu_count']} of {each['cpu_count']}",
        f"{reserved} of {bytes_text(each['memory_bytes'])}",
        f"{each['held_gpu_count']} of {each['gpu_count']}",
        _gpu_percents(each["gpus"]),
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"


def _gpu_percents(gpus: list[Document]) -> str | None:
    """The use of each GPU: `92%, 88%, -`."""
    return ", ".join(_percent(gpu["percent"]) for gpu in gpus) or None


def _gpu_memory(gpus: list[Document]) -> str | None:
    """The memory of all GPUs together: `31.0 GiB of 80.0 GiB`."""
    known = [gpu for gpu in gpus if gpu["memory_used_bytes"] is not None]
    if not known:
        return None
    used = bytes_text(sum(gpu["memory_used_bytes"] for gpu in known))
    return f"{used} of {bytes_text(sum(gpu['memory_total_bytes'] or 0 for gpu in known))}"
