"""The effects that store logs, outputs and state snapshots of runs.

Each is as the activity of its name in activities/site/collection.py and state_snapshots.py.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

from activities.storage import state_snapshots
from activities.storage.blobs import BlobStore
from activities.storage.names import output_name
from activities.storage.state_snapshots import StateSnapshot
from tests.simulation.contracts import Attempt, Sleep, Steps, Until
from tests.simulation.outside import failures
from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines
from tests.simulation.outside.reaching import reach
from tests.simulation.outside.run_names import name_of
from tests.simulation.outside.runs import EMPTY_BYTES, OUTPUT_BYTES, Run
from tests.simulation.outside.store import Store
from tests.simulation.outside.transfers import CONTENT
from workflows.contracts.base import Contract
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects import jobs
from workflows.effects.volumes import StoreVolume, VolumeStored

STATE_BYTES = 1 << 20
TRANSFERS_S = (0.2, 1.0, 5.0, 30.0, 200.0)
TRANSFER_WEIGHTS = (8, 8, 4, 2, 1)


@dataclass(frozen=True)
class StoredState:
    """The content of a state snapshot: how far the command had come."""

    saved_s: float
    size: int = STATE_BYTES


class Collection:
    """What a job brings from the machines of its workers into the object store."""

    def __init__(self, machines: Machines, store: Store) -> None:
        self._machines = machines
        self._store = store
        self._random = machines.temporal.random

    def collect_log(self, _: Attempt, command: jobs.CollectLog) -> Contract:
        run = _run(reach(self._machines, command.node), command.node, command.run_id)
        wanted = run.log_bytes if run else 0
        job_id = parse_run_id(command.run_id)[0]
        return jobs.LogCollected(
            stored_bytes=self._store.extend_log(job_id, command.run_id, wanted)
        )

    def store_output(self, _: Attempt, command: jobs.StoreOutput) -> Contract | Steps:
        job_id, worker, attempt = parse_run_id(command.run_id)
        name = output_name(job_id, worker, attempt)
        size = self._store.get(name)
        if size is not None:
            return jobs.OutputStored(stored_bytes=size)
        machine = reach(self._machines, command.node)
        run = _staged_run(machine, command.node, command.run_id, "output")
        return self._store_output(run, command, name)

    def _store_output(self, run: Run, command: jobs.StoreOutput, name: str) -> Steps:
        yield from self._transfer(run.machine, command.node)
        count = 1 if run.behaviour.writes_output and run.is_started else 0
        size = OUTPUT_BYTES if count else EMPTY_BYTES
        self._store.put(name, size)
        return jobs.OutputStored(stored_bytes=size, file_count=count)

    def save_snapshot(self, _: Attempt, command: jobs.SaveSnapshot) -> Contract | Steps:
        machine = reach(self._machines, command.node)
        run = _staged_run(machine, command.node, command.run_id, command.folders[0])
        saved_s = run.saved_s()
        if saved_s <= 0:
            return jobs.SnapshotSaved(outcome=jobs.SnapshotOutcome.NOTHING)
        copies = copies_of(self._store, run.job_id, run.worker)
        unchanged = jobs.SnapshotSaved(
            outcome=jobs.SnapshotOutcome.UNCHANGED, state_bytes=STATE_BYTES, file_count=1
        )
        if any(copy.attempt > run.attempt for copy in copies):
            return unchanged
        mark = f"{int(saved_s):x}"
        if copies and (copies[-1].attempt, copies[-1].mark) == (run.attempt, mark):
            return unchanged.model_copy(update={"stored_bytes": STATE_BYTES})
        new = StateSnapshot(run.attempt, command.at, mark, tuple(command.folders))
        return self._save_snapshot(run, command, new, saved_s)

    def _save_snapshot(
        self, run: Run, command: jobs.SaveSnapshot, new: StateSnapshot, saved_s: float
    ) -> Steps:
        yield from self._transfer(run.machine, command.node)
        self._store.put(new.name(run.job_id, run.worker), StoredState(saved_s))
        state_snapshots.remove_older(cast("BlobStore", self._store), run.job_id, run.worker, new)
        return jobs.SnapshotSaved(
            outcome=jobs.SnapshotOutcome.SAVED,
            state_bytes=STATE_BYTES,
            stored_bytes=STATE_BYTES,
            file_count=1,
        )

    def store_volume(self, _: Attempt, command: StoreVolume) -> Contract | Steps:
        """As activities/site/volumes.py; a command writes to its volumes all the time."""
        machine = reach(self._machines, command.node)
        run = _staged_run(machine, command.node, command.run_id, "volume")
        mark = f"{run.log_bytes:x}"
        if mark == command.last_mark:
            return VolumeStored(mark=mark)
        return self._store_volume(run, command, mark)

    def _store_volume(self, run: Run, command: StoreVolume, mark: str) -> Steps:
        yield from self._transfer(run.machine, command.node)
        place = f"{command.at:%Y%m%dt%H%M%S%f}-{self._random.getrandbits(32):08x}"
        return VolumeStored(mark=mark, place=place, content=CONTENT)

    def _transfer(self, machine: Machine, node: NodeAddress) -> Generator[Sleep | Until, Any, None]:
        """Bytes come from the machine for a while; what breaks off has stored nothing."""
        takes_s = self._random.choices(TRANSFERS_S, TRANSFER_WEIGHTS)[0]
        takes_s *= self._random.uniform(0.5, 1.5)
        with machine.connect(node.node_id) as connection:
            yield from connection.until(lambda: False, takes_s)


def copies_of(store: Store, job_id: str, worker: int) -> list[StateSnapshot]:
    """The stored state snapshots of a worker, oldest first."""
    return state_snapshots.copies_of(cast("BlobStore", store), job_id, worker)


def _run(machine: Machine, node: NodeAddress, run_id: str) -> Run | None:
    return machine.runs.get(name_of(run_id, node.node_id))


def _staged_run(machine: Machine, node: NodeAddress, run_id: str, folder: str) -> Run:
    """The run, whose folders exist since its staging.

    Raises: ApplicationError NODE_REFUSED, as activities/agent/files/packing.py:entries.
    """
    run = _run(machine, node, run_id)
    if run is None or not run.is_staged:
        words = f"run {run_id}: has no folder {folder}"
        raise failures.refused(node.node_id, "no-folder", words)
    return run
