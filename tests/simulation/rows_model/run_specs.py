"""Run specs and what else is stored of jobs. As activities/jobs/run_specs.py."""

from temporalio.exceptions import ApplicationError

from activities.housekeeping.retention import DELIVERED_RETENTION, SNAPSHOT_RETENTION
from activities.jobs.run_specs import UNTIL_ITS_END
from activities.jobs.worker_addresses import _ports
from tests.simulation.contracts import Attempt, Handler, Outside
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import JOB
from workflows.effects.housekeeping import ExpiredRemoved, RemoveExpired
from workflows.effects.jobs import (
    DiscardOutputs,
    DiscardRunSpecs,
    DiscardSnapshots,
    RemoveStored,
    RunSpecsSealed,
    SealRunSpecs,
)


class RunSpecs:
    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        allocations: Allocations,
        outside: Outside,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._allocations = allocations
        self._outside = outside

    def effects(self) -> dict[str, Handler]:
        return {
            "seal_run_specs": self._seal_run_specs,
            "discard_run_specs": self._discard_run_specs,
            "discard_snapshots": self._discard_snapshots,
            "discard_outputs": self._discard_outputs,
            "remove_stored": self._remove_stored,
            "remove_expired": self._remove_expired,
        }

    def _seal_run_specs(self, attempt: Attempt, command: SealRunSpecs) -> RunSpecsSealed:
        """As run_specs.py:seal_run_specs. Raises: NotFound, when an allocation is not there."""
        job = self._tables.jobs.get(command.job_id)
        if job is not None:
            with self._tables.write():
                self._hold_rendezvous_port(command.job_id, command.attempt)
        self._check_allocations(command)
        self._outside.keep_run_specs(command.job_id, command.attempt)
        is_needed = (
            job is not None and job.attempt == command.attempt and job.status in UNTIL_ITS_END
        )
        if not is_needed:
            self._outside.discard(command.job_id, "run_specs", command.attempt)
        return RunSpecsSealed(
            references=tuple(
                f"run-specs/{command.job_id}/{command.attempt}/{each.worker}"
                for each in command.assignments
            )
        )

    def _check_allocations(self, command: SealRunSpecs) -> None:
        """As run_specs.py:_gather and _isolations."""
        if command.job_id not in self._tables.jobs:
            raise ApplicationError(f"{command.job_id}: there is no such job", type=NOT_FOUND)
        for each in command.assignments:
            run = (command.job_id, each.worker, command.attempt)
            held = self._tables.allocation_of.get(run)
            if held is None or held.node_id != each.node.node_id:
                raise ApplicationError(
                    f"{command.job_id}: worker {each.worker} has no allocation on "
                    f"{each.node.node_id} in attempt {command.attempt}",
                    type=NOT_FOUND,
                )

    def _hold_rendezvous_port(self, job_id: str, attempt: int) -> None:
        """As worker_addresses.py:hold_rendezvous_port."""
        tables = self._tables
        job = tables.jobs[job_id]
        runs = [(job_id, worker, attempt) for worker in range(len(job.spec.workers))]
        held = [tables.allocation_of[run] for run in runs if run in tables.allocation_of]
        if len(held) < 2 or held[0].worker != 0 or any(each.port for each in held[1:]):
            return
        first = held[0]
        if first.port is None:
            free = (
                port
                for port in _ports(job_id, attempt)
                if (first.node_id, port) not in tables.port_holders
            )
            self._allocations.take_port(first, next(free))

    def _discard_run_specs(self, attempt: Attempt, command: DiscardRunSpecs) -> Done:
        self._outside.discard(command.job_id, "run_specs", command.attempt)
        return Done()

    def _discard_snapshots(self, attempt: Attempt, command: DiscardSnapshots) -> Done:
        self._outside.discard(command.job_id, "snapshots")
        return Done()

    def _discard_outputs(self, attempt: Attempt, command: DiscardOutputs) -> Done:
        self._outside.discard(command.job_id, "outputs")
        return Done()

    def _remove_stored(self, attempt: Attempt, command: RemoveStored) -> Done:
        self._outside.discard(command.job_id, "everything")
        return Done()

    def _remove_expired(self, attempt: Attempt, command: RemoveExpired) -> ExpiredRemoved:
        """As housekeeping/retention.py, of outbox rows and state snapshots alone."""
        now, tables = self._connection.now(), self._tables
        before = now - DELIVERED_RETENTION
        old = [
            row
            for row in tables.outbox.values()
            if row.delivered_at is not None and row.delivered_at < before
        ]
        with tables.write():
            for row in old:
                tables.drop(tables.outbox, row.id)
                tables.drop(tables.delivered.get(row.resource_id, {}), row.id)
                if tables.wakes.get(row.resource_id) is row:
                    tables.drop(tables.wakes, row.resource_id)
        ended = [
            job_id
            for job_id in sorted(self._outside.jobs_with_snapshots())
            if (job := tables.jobs.get(job_id)) is not None
            and job.status in JOB.final_statuses
            and job.updated_at < now - SNAPSHOT_RETENTION
        ]
        for job_id in ended:
            self._outside.discard(job_id, "snapshots")
        return ExpiredRemoved(outbox_rows=len(old), jobs_with_snapshots=len(ended))
