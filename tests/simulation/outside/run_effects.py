"""The effects by which a job stages, starts, polls, ends and cleans a run.

Each is as the activity of its name in activities/site/staging.py and runs.py, with the verbs of the
agent behind it.
"""

from temporalio.exceptions import ApplicationError

from activities.storage.state_snapshots import StateSnapshot
from tests.simulation.contracts import Attempt, Steps
from tests.simulation.outside import failures
from tests.simulation.outside.collection import copies_of
from tests.simulation.outside.endings import end_runs
from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines
from tests.simulation.outside.reaching import reach
from tests.simulation.outside.run_names import name_of
from tests.simulation.outside.runs import Run
from tests.simulation.outside.store import RunSpecs, Store
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.jobs import RunReport
from workflows.contracts.jobs import run_id as run_id_of
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState
from workflows.effects import jobs
from workflows.effects.sessions import OpenTrunk, TrunkOpened

STAGING_S = (0.3, 1.0, 3.0, 10.0, 60.0, 300.0)
STAGING_WEIGHTS = (8, 12, 8, 4, 2, 1)
END_S = 170.0
STAGE_S = 3500.0


class RunEffects:
    """What a job asks of the machines of its workers."""

    def __init__(self, machines: Machines, store: Store) -> None:
        self._machines = machines
        self._store = store
        self._random = machines.temporal.random

    # ── staging ─────────────────────────────────────────────────────────────────────────────

    def stage_worker(self, _: Attempt, command: jobs.StageWorker) -> Contract | Steps:
        run_id, node = command.run_id, command.node
        specs = self._open(command)
        _check_assignment(command)
        machine = reach(self._machines, node)
        run = _folder(machine, run_id, node.node_id)
        was_staged = run.state is not RunState.UNKNOWN
        restored = jobs.WorkerStaged()
        if command.restores_state:
            restored = self._restore(run, was_staged=was_staged)
        if was_staged:
            return restored
        if machine.is_disk_full:
            words = "disk of the node: asked 10.0 GB, 0.0 GB free"
            raise failures.refused(node.node_id, "disk-full", words)
        run.seal(specs, command.assignment)
        return self._stage(run, command, restored)

    def _open(self, command: jobs.StageWorker) -> RunSpecs:
        """The run specs of the attempt, as activities/site/staging.py:_open."""
        job_id, attempt, worker = command.run_spec.split("/")[-3:]
        specs = self._store.run_specs(job_id, int(attempt))
        words = f"run {command.run_id}: its run spec {command.run_spec}"
        if specs is None:
            raise failures.not_found(f"{words} is not in the store")
        if command.run_id != run_id_of(job_id, int(worker), int(attempt)):
            raise ApplicationError(f"{words} is of another run", type=errors.REFUSED)
        return specs

    def _restore(self, run: Run, *, was_staged: bool) -> jobs.WorkerStaged:
        """As activities/site/state_snapshots.py:bring_state."""
        copies = copies_of(self._store, run.job_id, run.worker)
        newest = next((one for one in reversed(copies) if one.attempt < run.attempt), None)
        if newest is None:
            return jobs.WorkerStaged()
        if not was_staged:
            run.restored_s = self._saved_s(run, newest)
        return jobs.WorkerStaged(state_saved_at=newest.saved_at)

    def _saved_s(self, run: Run, snapshot: StateSnapshot) -> float:
        stored = self._store.get(snapshot.name(run.job_id, run.worker))
        return float(stored.saved_s)

    def _stage(self, run: Run, command: jobs.StageWorker, restored: jobs.WorkerStaged) -> Steps:
        """The agent goes on with a staging of which nobody hears any more."""
        machine, node_id = run.machine, command.node.node_id
        if run.staging is None:
            takes_s = self._random.choices(STAGING_S, STAGING_WEIGHTS)[0]
            takes_s *= self._random.uniform(0.5, 1.5)
            run.staging = machine.later(takes_s, lambda: _finish_staging(run, command))
        with machine.connect(node_id) as connection:
            if not (yield from connection.until(lambda: run.staging is None, STAGE_S)):
                raise failures.lost(node_id, machine.host, errors.OUTCOME_UNKNOWN)
        if run.name in machine.removed:
            raise _removed(node_id, run.run_id)
        return restored

    # ── start, poll, end, clean ─────────────────────────────────────────────────────────────

    def start_worker(self, _: Attempt, command: jobs.StartWorker) -> Contract:
        node_id = command.node.node_id
        machine = reach(self._machines, command.node)
        run = machine.runs.get(name_of(command.run_id, node_id))
        if run is None or run.state is RunState.UNKNOWN:
            words = f"run {command.run_id}: it was not staged on this node"
            raise failures.refused(node_id, "not-staged", words)
        self._check_state(run)
        run.start()
        return run.report()

    def _check_state(self, run: Run) -> None:
        """What an earlier attempt has kept is there when the command starts."""
        if run.is_started or run.exit is not None or self._store.is_away:
            return
        copies = copies_of(self._store, run.job_id, run.worker)
        kept = [one for one in copies if one.attempt < run.attempt]
        if kept and run.restored_s < (saved_s := self._saved_s(run, kept[-1])):
            words = f"starts at {run.restored_s:g} s, and its state of {saved_s:g} s is stored"
            run.machine.violations.append(f"{run.run_id} {words}")

    def get_run_status(self, _: Attempt, command: jobs.GetRunStatus) -> Contract:
        return _report(reach(self._machines, command.node), command.node, command.run_id)

    def end_worker(self, _: Attempt, command: jobs.EndWorker) -> Contract | Steps:
        machine, node_id = reach(self._machines, command.node), command.node.node_id
        name = name_of(command.run_id, node_id)
        run = machine.runs.get(name)
        if run is None and name not in machine.removed:
            run = _folder(machine, command.run_id, node_id)
        if run is None or run.exit is not None:
            return _report(machine, command.node, command.run_id)
        if not run.is_started:
            run.never_start()
            return run.report()
        return self._end(run, command)

    def _end(self, run: Run, command: jobs.EndWorker) -> Steps:
        with run.machine.connect(command.node.node_id) as connection:
            alive = yield from end_runs(connection, (run,), command.grace_s)
        if run in alive:
            raise failures.refused(command.node.node_id, "tree-alive", alive[run])
        return _report(run.machine, command.node, command.run_id)

    def clean_worker(self, _: Attempt, command: jobs.CleanWorker) -> Contract:
        machine, node_id = reach(self._machines, command.node), command.node.node_id
        name = name_of(command.run_id, node_id)
        run = machine.runs.get(name)
        if run is not None and run.state in (RunState.RUNNING, RunState.LOST):
            raise ApplicationError(
                f"{node_id}: {command.run_id} still runs, so its folder is kept",
                type=errors.NODE_REFUSED,
            )
        machine.runs.pop(name, None)
        machine.removed.add(name)
        return Done()

    def open_trunk(self, _: Attempt, __: OpenTrunk) -> Contract:
        return TrunkOpened()


def _check_assignment(command: jobs.StageWorker) -> None:
    """As activities/storage/run_specs.py:Isolation.difference: sealed for this node alone."""
    node, own = command.node, command.assignment.node
    if (node.node_id, node.minion_id) != (own.node_id, own.minion_id):
        raise ApplicationError(
            f"run {command.run_id}: asked node {node.node_id}, sealed {own.node_id}",
            type=errors.REFUSED,
            non_retryable=True,
        )


def _folder(machine: Machine, run_id: str, node_id: str) -> Run:
    """The run's folder, made if it is missing. Raises: ApplicationError, when it was removed."""
    name = name_of(run_id, node_id)
    if name in machine.removed:
        raise _removed(node_id, run_id)
    run = machine.runs.get(name)
    if run is None:
        run = machine.runs[name] = Run(machine, name, run_id, node_id)
    return run


def _finish_staging(run: Run, command: jobs.StageWorker) -> None:
    """Write the run's spec, unless the run was removed meanwhile (removal.py:unless_removed)."""
    run.staging = None
    if run.name not in run.machine.removed:
        run.stage(command.assignment)
    run.machine.tell()


def _removed(node_id: str, run_id: str) -> ApplicationError:
    return failures.refused(node_id, "removed", f"run {run_id}: it was removed from this node")


def _report(machine: Machine, node: NodeAddress, run_id: str) -> RunReport:
    run = machine.runs.get(name_of(run_id, node.node_id))
    return run.report() if run else RunReport(run_id=run_id, state=RunState.UNKNOWN)
