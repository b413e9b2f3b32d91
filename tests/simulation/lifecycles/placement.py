"""Placement: a job waits only for what is not there, and says what that is.

The fit test is one of its own, by what the plan's jobs ask for, and not the product's planner.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.contracts import CapacityView, JobView
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import Part
from tests.simulation.plan import JobPlan
from tests.simulation.submissions import GPU, PORT
from workflows.contracts.jobs import parse_run_id
from workflows.rules.counts import counted
from workflows.rules.placement.node_refusals import NOTHING_THERE

DISK_BYTES = 10 * 1000**3
"""What each worker of a plan's jobs asks for."""
SAYS = re.compile(r"(?:node|cloud region) ([^ :]+)(?: \([^)]*\))?: (.*)")


@dataclass
class Room:
    """What one node has left: its GPUs, its CPUs, its disk, and whether a service has its port."""

    of: CapacityView
    is_healthy: bool
    """Whether node and region take jobs."""
    free_gpus: int = 0
    free_cpus: int = 0
    has_service: bool = False
    taken: int = 0
    """By so many runs."""

    def workers(self, plan: JobPlan) -> int:
        """How many workers of the job fit now."""
        if not self.is_healthy:
            return 0
        if not plan.gpu_count:
            fit = self.free_cpus
        elif self.of.gpu_count < plan.gpu_count:
            fit = 0
        else:
            fit = self.free_cpus // self.cpus_of(plan.gpu_count)
            fit = min(self.free_gpus // plan.gpu_count, fit)
        if plan.type.is_service:
            fit = min(fit, 0 if self.has_service else 1)
        return max(0, min(fit, self.free_disk_bytes // DISK_BYTES))

    def cpus_of(self, gpus: int) -> int:
        """What a worker holds that asks for so many GPUs: their share, or one."""
        return max(1, self.of.cpu_count * gpus // (self.of.gpu_count or 1))

    @property
    def free_disk_bytes(self) -> int:
        return self.of.free_disk_bytes - self.taken * DISK_BYTES

    def workers_if_empty(self, plan: JobPlan) -> int:
        empty = Room(self.of, self.is_healthy, self.of.gpu_count, self.of.cpu_count)
        return empty.workers(plan)


@dataclass
class Places:
    """Everything that jobs of one life could run on at this moment."""

    by_region: dict[str, list[Room]] = field(default_factory=lambda: defaultdict(list))
    rooms: dict[str, Room] = field(default_factory=dict)
    """By the names of the nodes."""
    cloud_regions: dict[str, bool] = field(default_factory=dict)
    """The ids of the regions of clouds, and whether each sells machines."""
    with_credits: set[str] = field(default_factory=set)
    """The accounts that have any."""

    def has_room(self, life: Life, job: JobView, *, if_empty: bool = False) -> bool:
        """Whether all workers of the job fit on the nodes of one region. if_empty: were they so."""
        plan = life.jobs[job.job_id]
        if plan.only_cloud or self._lacks_credits(job, plan):
            return False
        return any(
            sum(
                room.workers_if_empty(plan) if if_empty else room.workers(plan)
                for room in rooms
                if room.of.account_id == job.account_id
            )
            >= plan.worker_count
            for rooms in self.by_region.values()
        )

    def has_market(self, life: Life, job: JobView) -> bool:
        """Whether a cloud sells machines for it: those of plans are all sold, to who can pay."""
        is_owner = job.account_id == life.accounts[0]  # Of all providers.
        return is_owner and job.account_id in self.with_credits and any(self.cloud_regions.values())

    def _lacks_credits(self, job: JobView, plan: JobPlan) -> bool:
        """Own machines cost for their GPUs alone."""
        return bool(plan.gpu_count) and job.account_id not in self.with_credits


def _places(life: Life) -> Places:
    found = Places()
    ready = {one.resource_id for one in life.rows.providers() if one.status == "ready"}
    healthy = set()
    for region in life.rows.regions():
        is_open = region.status == "healthy"
        if region.provider_id != life.providers[0]:
            found.cloud_regions[region.resource_id] = is_open and region.provider_id in ready
        if is_open:
            healthy.add(region.resource_id)
    held = defaultdict(list)
    for one in life.rows.allocations():
        held[one.node_id].append(one)
    for of in life.rows.capacities():
        is_healthy = of.is_active and of.region_id in healthy
        room = Room(of, is_healthy, of.gpu_count, of.cpu_count)
        for one in held[of.node_id]:
            room.free_gpus -= len(one.gpu_indices)
            room.free_cpus -= room.cpus_of(len(one.gpu_indices))
            room.taken += 1
            job_id = parse_run_id(one.run_id)[0] if one.run_id else ""
            room.has_service |= job_id in life.jobs and life.jobs[job_id].type.is_service
        found.by_region[of.region_id].append(room)
        found.rooms[of.name] = room
    found.with_credits = {each.account_id for each in life.rows.accounts() if each.microcredits > 0}
    return found


def _at_rest(life: Life) -> Iterable[str]:
    waiting = [job for job in life.rows.jobs() if job.status == "waiting_for_resources"]
    if not waiting:
        return
    held = {one.job_id for one in life.rows.allocations()}
    waiting = [job for job in waiting if job.job_id not in held]
    places = _places(life)
    # The nodes that a job needs which has waited long are kept free for it, until it fits.
    keepers = {
        job.job_id
        for job in waiting
        if not places.has_room(life, job) and places.has_room(life, job, if_empty=True)
    }
    for job in waiting:
        if places.has_market(life, job):
            yield f"{job.job_id} waits, and a cloud sells what it asks for: {job.refusal}"
        elif not keepers and places.has_room(life, job):
            yield f"{job.job_id} waits, and there is room for it: {job.refusal}"
        elif not _is_true(life, job, places, is_kept_free=bool(keepers)):
            yield f"{job.job_id} waits, and not for this: {job.refusal}"


def _is_true(life: Life, job: JobView, places: Places, *, is_kept_free: bool) -> bool:
    """Whether the refusal that a waiting job gives is so."""
    plan, has_credits = life.jobs[job.job_id], job.account_id in places.with_credits
    if job.refusal == NOTHING_THERE.detail:
        nodes = (
            room.is_healthy
            for room in places.rooms.values()
            if room.of.account_id == job.account_id
        )
        return not any(nodes)
    if (said := SAYS.fullmatch(job.refusal or "")) is None:
        return False
    name, words = said.groups()
    if words.endswith("its payer has none left: add some"):
        return not has_credits
    if (room := places.rooms.get(name)) is None:
        return False
    if words == "is kept free for a job that has waited longer":
        return is_kept_free
    return words in _true_words(plan, room)


def _true_words(plan: JobPlan, room: Room) -> Iterable[str]:
    """What a node may say of itself to such a job, as it is."""
    of, gpus = room.of, f"asked {plan.gpu_count}×{GPU}"
    if plan.only_cloud:
        yield "asked provider gcp, is of physical"
        return
    if plan.gpu_count and not of.gpu_count:
        yield f"{gpus}, has no GPU"
        return
    if of.gpu_count < plan.gpu_count:
        yield f"{gpus}, has {of.gpu_count}"
        return
    if not room.is_healthy:
        yield "is not active"
        return
    if room.free_gpus < plan.gpu_count:
        yield f"{gpus}, {room.free_gpus} free of {of.gpu_count}"
    if room.free_cpus < (cpus := room.cpus_of(plan.gpu_count)):
        yield f"asked {counted(cpus, 'CPU')}, {room.free_cpus} free of {of.cpu_count}"
    if room.free_disk_bytes < DISK_BYTES:
        yield f"asked 10 GB of disk, {max(0, room.free_disk_bytes) / 1000**3:.1f} free"
    if plan.type.is_service and room.has_service:
        yield f"asked port {PORT}, which is in use"
    if 0 < (fit := room.workers(plan)) < plan.worker_count:
        each = gpus.removeprefix("asked ") if plan.gpu_count else counted(cpus, "CPU")
        verb = "fits" if fit == 1 else "fit"
        here = f"{fit} {verb} here and too few elsewhere"
        yield f"asked {plan.worker_count} workers of {each}, {here}"


PLACEMENT = Part(name="placement", workflows=(), at_rest=_at_rest)
