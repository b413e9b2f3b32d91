"""The utilisation of a node: what its runs and its GPUs do, as the node has measured it.

A node may say anything of itself, so this is for people to read and decides nothing.
"""

from datetime import datetime

from workflows.contracts.base import Contract


class GpuUtilisation(Contract):
    """One GPU; what its driver does not tell is None."""

    uuid: str
    percent: int | None = None
    """The share of the last moments with a kernel running."""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None


class RunUtilisation(Contract):
    """One run: its command and all that it has started."""

    run_id: str
    cpu_percent: float | None = None
    """Of one core, since the measurement before; None: there was none."""
    memory_bytes: int = 0
    """The resident memory of its processes; what they share counts for each of them."""


class NodeUtilisation(Contract):
    """The last measurement of a node; the details of its watch's heartbeat."""

    at: datetime
    """When it arrived, by the clock of the worker that watches the node."""
    gpus: tuple[GpuUtilisation, ...] = ()
    runs: tuple[RunUtilisation, ...] = ()
