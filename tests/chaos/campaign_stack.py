"""The room: a stack, its machines, the jobs at work on them, and what is counted."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from temporalio.client import Client

from tests.chaos.job import RAN, RoomJob, Script
from tests.chaos.leftovers import (
    RUNS,
    connections_left,
    folders_left,
    job_of,
    orders_left,
    processes_left,
    rows_left,
    workflows_left,
)
from tests.chaos.stack import PatientPlatform, RoomStack, lose_patience, small_home
from tests.chaos.tally import NO_FAULT, Tally
from tests.chaos.verdicts import CPU_CORE_HOUR_MICROCREDITS, Seen, notes, verdicts
from tests.e2e.platform import Platform, Resource, Site
from tests.lab.host import execute
from tests.lab.machine import Kind, Machine
from tests.lab.machines import Lab

UNREACHABLE_LIMIT_S = 90
BILLING_PERIOD_S = 8
RECONCILIATION_INTERVAL_S = 15
FOLLOW_S = 0.5
STUCK_S = 400.0
NOTHING_LEFT_S = 180.0
"""A trunk without a session rests for two minutes."""
DISCARDED_S = 60.0
SMALL, SMALL_DISK_MIB = "small", 14_000
POOR = "poor"
HOSTILE = "hostile"
GIVEN_UP = "not reachable for"
"""What a job says that could wait no longer for its node: its node ends its run later."""
REMOVED = "is being removed"
"""What a job says whose node was taken away by force."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


async def aside(call: Callable[Asked, Answer], *args: Asked.args, **rest: Asked.kwargs) -> Answer:
    """Do what waits for the platform or a process in a thread."""
    return await asyncio.to_thread(call, *args, **rest)


async def eventually(look: Callable[[], object], what: str, limit_s: float = 90.0) -> None:
    """Until it holds; `look` costs nothing. Raises: TimeoutError naming `what`."""
    deadline = time.monotonic() + limit_s
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s:g} s")
        await asyncio.sleep(0.1)


@dataclass
class Place:
    """A machine, alone in a region of its own, so that a job can be sent to it."""

    machine: Machine
    site: Site
    node: str
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a job is submitted to fill it; whoever else holds it keeps new jobs away."""
    removed_until: float = 0.0
    """When its node was gone the last time: what was submitted before may have ended with it."""

    @property
    def name(self) -> str:
        return self.machine.name


class Room:
    """One stack, its places, and the jobs that are kept running on them."""

    def __init__(self, lab: Lab, tell: Callable[[str], None]) -> None:
        self.lab, self.tell = lab, tell
        home = lab.folder / "home"
        small_home(home)
        self.stack = RoomStack(
            home,
            lab.network.host_address,
            billing_period_s=str(BILLING_PERIOD_S),
            cpu_core_hour_microcredits=str(CPU_CORE_HOUR_MICROCREDITS),
            job_unreachable_limit_s=str(UNREACHABLE_LIMIT_S),
            job_end_grace_s="1",
            reconciliation_interval_s=str(RECONCILIATION_INTERVAL_S),
            announcements_per_minute="6000",
        )
        self.tally = Tally()
        self.places: list[Place] = []
        self.jobs: dict[str, RoomJob] = {}
        self.strays: set[str] = set()
        self.filling = False
        self.ended = 0
        """How many jobs have come to their end."""
        self._checks: set[asyncio.Task[None]] = set()

    # ── before and after ────────────────────────────────────────────────────────────────────

    async def open(self, machines: dict[str, Kind]) -> None:
        """Until every machine is a node that takes jobs; `small` has a small disk, `poor` is of an
        account that has few credits at a time, `hostile` of one that attacks the others."""
        await aside(self.stack.wait_until_ready, 120.0)
        self.platform = PatientPlatform(self.stack.url, self.stack.administrator_key)
        self.temporal = await Client.connect(self.stack.temporal_address)
        own = (await aside(self.platform.get, "/v1/account"))["id"]
        await self.grant(own, 10**12)
        self.poor_id, self.poor = await self._account(POOR)
        hostile_id, self.hostile = await self._account(HOSTILE)
        await self.grant(hostile_id, 10**12)
        accounts = (self.platform, self.poor, self.hostile)
        providers = {each: await self._enable(each) for each in accounts}
        booted = [self.lab.add(name, kind) for name, kind in machines.items()]
        alone = {POOR: self.poor, HOSTILE: self.hostile}
        owners = [alone.get(each.name, self.platform) for each in booted]
        joined = (
            self._join(machine, owner, providers[owner])
            for machine, owner in zip(booted, owners, strict=True)
        )
        self.places = await asyncio.gather(*joined)

    async def _account(self, name: str) -> tuple[str, PatientPlatform]:
        """Another account: its id, and its own view of the platform."""
        account_id = (await aside(self.platform.post, "/v1/accounts", {"name": name}))["id"]
        view = PatientPlatform(self.stack.url, self.stack.administrator_key)
        view.http.headers["X-Baseload-Account"] = account_id
        return account_id, view

    async def grant(self, account_id: str, microcredits: int) -> None:
        amount = {"amount_microcredits": microcredits}
        await aside(self.platform.post, f"/v1/accounts/{account_id}/credits", amount)

    async def _enable(self, owner: Platform) -> str:
        made: str = (await aside(owner.post, "/v1/providers", {"kind": "physical"}))["id"]
        await aside(owner.until_status, f"/v1/providers/{made}", "ready")
        return made

    async def _join(self, machine: Machine, owner: Platform, provider_id: str) -> Place:
        body = {"provider_id": provider_id, "name": machine.name, "relaxed_requirements": ["all"]}
        region = (await aside(owner.post, "/v1/regions", body))["id"]
        await aside(owner.until_status, f"/v1/regions/{region}", "healthy")
        machine.run("mkdir", "--mode=1777", RAN)
        if machine.name == SMALL:
            machine.small_disk("/var/lib/baseload", SMALL_DISK_MIB)
        site = Site(owner, region)
        return Place(machine, site, (await aside(site.join, machine))[0])

    def close(self, evidence: Path | None = None) -> None:
        """evidence: where the stack's home is copied to if anything is wrong; it is small."""
        lose_patience(self)
        try:
            self.stack.close()
            if evidence is not None and not self.tally.is_clean:
                shutil.copytree(self.stack.home, evidence, dirs_exist_ok=True)
        finally:
            execute("umount", "--lazy", self.stack.home)

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    async def submit(self, place: Place, script: Script, **changes: Any) -> RoomJob:
        """Hand in a job for that place; it is followed from now on."""
        path = await aside(
            place.site.platform.job,
            script.command,
            place.site.region_id,
            name=place.name,
            **changes,
        )
        return self.follow_job(path.rsplit("/", 1)[1], place, script)

    def follow_job(self, job_id: str, place: Place, script: Script) -> RoomJob:
        job = RoomJob(job_id, place.name, script, time.monotonic())
        self.tally.jobs += 1
        return self.jobs.setdefault(job_id, job)

    def at(self, place: Place) -> list[RoomJob]:
        """Jobs of a place that have not ended, as far as is known."""
        return [job for job in self.jobs.values() if job.place == place.name and not job.has_ended]

    def alive(self) -> list[RoomJob]:
        return [job for job in self.jobs.values() if not job.has_ended]

    def accompany(self, company: Coroutine[Any, Any, None]) -> None:
        """What a person does with a job beside it; the room rests no earlier than that is over."""
        task = asyncio.create_task(company)
        self._checks.add(task)
        task.add_done_callback(self._checked)

    async def follow(self) -> None:
        """See what becomes of the jobs, and look closely at each that has ended."""
        while True:
            for owner in (self.platform, self.poor):
                for row in await aside(owner.items, "/v1/jobs", limit=500):
                    self._note(row)
            for job in list(self.jobs.values()):
                self._give_up_if_stuck(job)
                if job.has_ended and not job.held and not job.looked_at:
                    job.looked_at = True
                    self.ended += 1
                    check = asyncio.create_task(self._look_at(job))
                    self._checks.add(check)
                    check.add_done_callback(self._checked)
            await asyncio.sleep(FOLLOW_S)

    def _note(self, row: Resource) -> None:
        if (job := self.jobs.get(row["id"])) is not None:
            job.row = row

    def _give_up_if_stuck(self, job: RoomJob) -> None:
        if job.has_ended or time.monotonic() - job.submitted_s < STUCK_S:
            return
        fault = job.faults[-1] if job.faults else NO_FAULT
        state = f"{job.status} ({job.row.get('status_reason')}) after {STUCK_S:.0f} s"
        self.tally.wrong(fault, "lost", f"{job.id} on {job.place}: {state}")
        del self.jobs[job.id]

    def _checked(self, check: asyncio.Task[None]) -> None:
        self._checks.discard(check)
        check.result()

    async def _look_at(self, job: RoomJob) -> None:
        """Take note of what is wrong with it; one that is in order is removed."""
        place = next(one for one in self.places if one.name == job.place)
        seen = await aside(self._see, job, place)
        if job.retries or job.is_service:
            job.attempts = job.attempt
        if GIVEN_UP in str(job.row["status_reason"]):
            job.strays = True
            self.strays.add(job.id)
        if REMOVED in str(job.row["status_reason"]) and job.submitted_s <= place.removed_until:
            job.may("failed")
        fault = job.faults[-1] if job.faults else NO_FAULT
        right = True
        for what, message in verdicts(job, seen):
            right = False
            self.tally.wrong(fault, what, f"on {job.place}, after {job.faults}: {message}")
            self.tell(f"WRONG {self.tally.found[-1]}")
        if right:
            await aside(place.site.platform.ask, "DELETE", job.path)
            del self.jobs[job.id]

    def _see(self, job: RoomJob, place: Place) -> Seen:
        owner = place.site.platform
        log = owner.ask("GET", f"{job.path}/logs").content
        charges = owner.get(f"{job.path}/charges")["charges"]
        job.row = owner.get(job.path)
        files = (self.disk(place) / RAN.lstrip("/")).glob(f"{job.id}.*")
        runs = sorted((notes(file.read_text()) for file in files), key=lambda run: run[:1])
        ran = [note for run in runs for note in run]
        return Seen(ran, log, charges, self._outputs(job))

    def _outputs(self, job: RoomJob) -> list[str]:
        """Its outputs in the store; one that was discarded is removed after the job has ended."""
        deadline = time.monotonic() + DISCARDED_S
        folder = self.stack.home / "storage/outputs" / job.id
        while True:
            found = sorted(one.name for one in folder.glob("*")) if folder.is_dir() else []
            goes = found and job.is_discarded and job.status == "canceled"
            if not goes or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def disk(self, place: Place) -> Any:
        """The machine's own files, also while it is switched off; only to be read."""
        return self.lab.folder / place.name / "upper"

    @contextmanager
    def holding(self, jobs: list[RoomJob]) -> Iterator[None]:
        """These are looked at only afterwards, when what they lived through is over."""
        for job in jobs:
            job.held += 1
        try:
            yield
        finally:
            for job in jobs:
                job.held -= 1

    # ── the world ───────────────────────────────────────────────────────────────────────────

    async def drain(self) -> None:
        """No new job; until all have ended and were looked at."""
        self.filling = False
        for place in self.places:
            async with place.filling:  # one may be on its way
                pass
        await eventually(
            lambda: not self.alive() and not self._checks and all(
                job.looked_at for job in self.jobs.values()
            ),
            "all jobs have ended",
            STUCK_S + 60,
        )  # fmt: skip

    async def look_around(self, fault: str) -> None:
        """With no job at work nothing of any may be left; what is, belongs to `fault`."""
        for place in self.places:
            await aside(self._age_strays, place)
        deadline = time.monotonic() + NOTHING_LEFT_S
        while left := await self._left():
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(1)
        for each in left:
            self.tally.wrong(fault, "left", each)
            self.tell(f"WRONG {self.tally.found[-1]}")

    def _age_strays(self, place: Place) -> None:
        """The runs that were left to a node's sweep are kept for an hour: let this be over."""
        folders = [
            one for one in (place.machine.disk / RUNS).iterdir() if job_of(one) in self.strays
        ]
        for folder in folders:
            place.machine.run("touch", "-d", "2 hours ago", f"/{RUNS}/{folder.name}/told")
        if folders:
            place.machine.restart_sshd(drop_sessions=True)

    async def _left(self) -> list[str]:
        left = list(rows_left(self.stack.home)) + list(orders_left(self.stack.home))
        left += await workflows_left(self.temporal)
        left += connections_left(self.stack.pid("worker"), self.stack.url)
        for place in self.places:
            left += processes_left(place.name, place.machine.pids())
            left += folders_left(place.name, place.machine.disk)
            node = await aside(place.site.platform.get, place.node)
            if node["status"] != "active":
                left.append(f"{place.name}: node is {node['status']}: {node['status_reason']}")
        return left
