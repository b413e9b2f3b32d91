"""The fair-share queue of placement: which demand is at its turn.

Among accounts the one that holds least; among its jobs priority first, then the project that holds
least; within one, first come first served.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain

from workflows.contracts.placement import PendingDemand, PendingJob

CPUS_PER_GPU = 8
"""The weight of a GPU in CPUs, to compare how much accounts and projects hold."""


def weight(worker_count: int, gpu_count: int, cpu_count: int) -> int:
    """The weight of a job: one number to compare how much accounts and projects hold."""
    return worker_count * (gpu_count * CPUS_PER_GPU + cpu_count)


class Line:
    """A pending demand in the queue, and its first job that is not placed yet."""

    __slots__ = ("_jobs", "head", "pending")

    def __init__(
        self, pending: PendingDemand, head: PendingJob, jobs: Iterator[PendingJob]
    ) -> None:
        self.pending = pending
        self.head = head
        self._jobs = jobs

    def advance(self) -> bool:
        """Go on to the next job. False: there is none."""
        following = next(self._jobs, None)
        if following is None:
            return False
        self.head = following
        return True

    def left(self) -> Iterator[PendingJob]:
        """The head and all jobs behind it."""
        return chain((self.head,), self._jobs)


class FairShareQueue:
    """The fair-share queue of pending demands, each at its turn.

    A demand is left out after its turn unless `charge` is called, which also moves its account and
    its project back.
    """

    def __init__(self, demands: Iterable[PendingDemand], held: Mapping[str, int]) -> None:
        self.held = dict(held)
        self._charged = False
        self._lines: dict[str, list[tuple[int, datetime, str, Line]]] = {}
        self._projects: dict[str, list[tuple[int, int, datetime, str, str]]] = {}
        for pending in demands:
            jobs = iter(pending.jobs)
            head = next(jobs, None)
            if head is not None:
                self._projects.setdefault(pending.demand.account_id, [])
                self._add_line(Line(pending, head, jobs))
        owners = {
            project_id: lines[0][-1].pending.demand.account_id
            for project_id, lines in self._lines.items()
        }
        for project_id, account_id in owners.items():
            self._add_project(account_id, project_id)
        self._accounts: list[tuple[int, datetime, str, str]] = []
        for account_id in self._projects:
            self._add_account(account_id)

    def __iter__(self) -> Iterator[Line]:
        while self._accounts:
            *_, account_id = heapq.heappop(self._accounts)
            projects = self._projects[account_id]
            *_, project_id = heapq.heappop(projects)
            lines = self._lines[project_id]
            *_, line = heapq.heappop(lines)
            self._charged = False
            yield line
            if self._charged and line.advance():
                self._add_line(line)
            if lines:
                self._add_project(account_id, project_id)
            if projects:
                self._add_account(account_id)

    def charge(self, line: Line) -> None:
        """Count the head of the demand at turn as held."""
        demand = line.pending.demand
        added = weight(demand.worker_count, demand.gpu_count, demand.cpu_count)
        for holder_id in (line.pending.project_id, demand.account_id):
            self.held[holder_id] = self.held.get(holder_id, 0) + added
        self._charged = True

    def _add_line(self, line: Line) -> None:
        pending, head = line.pending, line.head
        entry = pending.priority, head.waiting_since, head.job_id, line
        heapq.heappush(self._lines.setdefault(pending.project_id, []), entry)

    def _add_project(self, account_id: str, project_id: str) -> None:
        priority, since, job_id, _ = self._lines[project_id][0]
        entry = priority, self.held.get(project_id, 0), since, job_id, project_id
        heapq.heappush(self._projects[account_id], entry)

    def _add_account(self, account_id: str) -> None:
        _, _, since, job_id, _ = self._projects[account_id][0]
        entry = self.held.get(account_id, 0), since, job_id, account_id
        heapq.heappush(self._accounts, entry)
