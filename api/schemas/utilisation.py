"""The schemas of what runs now: what it uses and what an hour of it costs."""

from datetime import datetime

from api.schemas.base import ResponseBody


class Gpu(ResponseBody):
    """A GPU in use; what its driver has not reported lately is null."""

    index: int | None
    uuid: str | None
    name: str | None
    percent: int | None
    """The share of the last moments with a kernel running."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    job_id: str | None


class RunningWorker(ResponseBody):
    """A worker of a job that runs, and what its command uses."""

    job_id: str
    job_name: str
    worker: int
    status: str
    """The status of the job: `running`, or `unreachable`."""
    node_id: str | None
    node_name: str | None
    elapsed_s: int | None
    cpu_count: int
    """The CPUs that the worker holds."""
    cpu_percent: float | None
    """Of one core, so that 250 is two cores and a half."""
    memory_limit_bytes: int
    """The memory that the worker holds; 0: it has asked for none."""
    memory_bytes: int | None
    """The resident memory of its processes; what they share counts for each of them."""
    gpus: list[Gpu]
    microcredits_per_hour: int | None
    """Of the whole job, with all its workers."""
    measured_at: datetime | None
    """When its node has measured it last; null: not lately, which the figures are then too."""


class BusyNode(ResponseBody):
    """A node of the account, and how much of it jobs hold."""

    node_id: str
    name: str
    status: str
    worker_count: int
    cpu_count: int
    reserved_cpu_count: int
    memory_bytes: int
    reserved_memory_bytes: int
    gpu_count: int
    held_gpu_count: int
    """The GPUs that jobs hold."""
    gpus: list[Gpu]
    """The GPUs that jobs hold."""
    measured_at: datetime | None


class Utilisation(ResponseBody):
    """What runs now. Nodes measure it every ten seconds; it decides nothing and is not stored."""

    at: datetime
    microcredits_per_hour: int
    """What an hour of all jobs of the account costs that run now."""
    workers: list[RunningWorker]
    """Of the newest jobs that run, 200 at most."""
    nodes: list[BusyNode]
    """The account's own nodes, 500 at most, for keys that may read nodes."""
    is_whole: bool
    """False: there are more jobs or nodes."""
