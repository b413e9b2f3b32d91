"""Defects that can be planted, one at a time, by which `proof.py` shows that the simulation sees.

`python -m tests.simulation.defects` plants each in processes of its own, plays lives until an
invariant breaks that holds without the defect, and prints after how many. The first four take back
a mend of a defect that the product once had.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

VARIABLE = "BASELOAD_SIMULATED_DEFECT"


@dataclass(frozen=True)
class Defect:
    """A small, plausible mistake: texts of modules, and what stands there instead."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    """Module, text (which it has once), and the other text."""
    is_taken_back: bool = False
    """Whether it is a mend that is taken back."""
    is_at_the_edge: bool = False
    """Whether it is one of devices or deployments, whose lives are those of `edge/`."""
    is_federated: bool = False
    """Whether it is one of federated jobs, whose lives are those of `federation/`."""


def _one(name: str, module: str, text: str, other: str) -> Defect:
    return Defect(name, ((module, text, other),))


JOB = "workflows.jobs.job_lifecycle"
TEARDOWN = "workflows.jobs.teardown"
TERMINATION = "workflows.jobs.termination"
LEASE = "workflows.leases.lease_lifecycle"
RUNNING = "workflows.nodes.running_jobs"
DRAIN = "workflows.nodes.drain"
PLANNER = "workflows.rules.placement.planner"

TAKEN_BACK: tuple[Defect, ...] = (
    Defect(
        "a-planned-end-is-a-loss",
        (
            (LEASE, "if not self._was_ready or self._machine.is_lost_at_provider:", "if True:"),
            (LEASE, "if self._deadline.until_notice() <= timedelta(0):", "if False:"),
        ),
        is_taken_back=True,
    ),
    Defect(
        "allocations-are-freed-without-proof",
        (
            (
                TEARDOWN,
                "    return tuple(one.assigned.allocation_id for one in left",
                "    return tuple(one.assigned.allocation_id for one in ()",
            ),
        ),
        is_taken_back=True,
    ),
    Defect(
        "a-loss-is-told-once-and-then-as-a-removal",
        ((DRAIN, "            return self._notice_of_loss()\n", "            planned = ''\n"),),
        is_taken_back=True,
    ),
    Defect(
        "a-job-goes-on-with-a-withdrawn-placement",
        (
            (JOB, "        if not recorded.confirmed:\n", "        if False:\n"),
            (JOB, "is_confirmed=recorded.confirmed", "is_confirmed=True"),
            (JOB, "        return recorded.confirmed\n", "        return True\n"),
        ),
        is_taken_back=True,
    ),
)
PLANTED: tuple[Defect, ...] = (
    _one(
        "allocations-are-not-released",
        JOB,
        "*retention_events(retained), release=True)",
        "*retention_events(retained), release=False)",
    ),
    _one(
        "machines-are-held-while-output-is-sent",
        JOB,
        "*retention_events(retained), release=True)",
        "*retention_events(retained), release=not delivers)",
    ),
    _one(
        "a-delivery-is-forgotten-with-the-engine",
        "workflows.jobs.delivery",
        "progress is not None and progress.is_delivering",
        "False",
    ),
    _one(
        "only-the-first-worker-is-settled",
        TEARDOWN,
        "PostUsage(usages=usages)",
        "PostUsage(usages=usages[:1])",
    ),
    _one(
        "an-exit-of-an-earlier-attempt-counts",
        "workflows.jobs.attempt",
        "worker is None or message.attempt != self.number or worker.has_ended",
        "worker is None or worker.has_ended",
    ),
    _one(
        "a-lost-placement-signal-is-waited-for-for-ever",
        JOB,
        "                await self._journal.continue_when_long()\n"
        "                await self._ask_for_placement()\n        return",
        "                await self._journal.continue_when_long()\n        return",
    ),
    _one(
        "the-machine-of-a-refused-offer-stays",
        LEASE,
        "        await shielded(self._abandon_offer(), self._canceled_outside)\n",
        "",
    ),
    _one(
        "termination-gives-up-after-one-failure",
        "workflows.leases.machine_end",
        '            await workflow.sleep(TERMINATION_INTERVAL, summary="before the next try to '
        'terminate")\n',
        "            return self._machine.ended(MachineObservation(state=MachineState.GONE))\n",
    ),
    _one(
        "a-machine-that-was-never-seen-is-not-terminated",
        LEASE,
        "        if self._machine.offer is not None:\n            self._machine.seen",
        "        if self._machine.seen is not None:\n            self._machine.seen",
    ),
    # Either change alone harms nothing: the request is heard by the next attempt, or before it.
    Defect(
        "a-request-during-the-teardown-is-forgotten",
        (
            (TERMINATION, "if stopped or (self.will_restart and not self.goes_on):", "if False:"),
            (TERMINATION, "            if self.goes_on:  # Else", "            if True:  # Else"),
        ),
    ),
    _one(
        "a-cancel-does-not-replace-a-stop",
        TERMINATION,
        "if self.request is None or not self.is_canceled:",
        "if self.request is None:",
    ),
    _one(
        "retries-have-no-limit",
        TERMINATION,
        "if (self.request is None or is_asked) and self.retries < self._max_retries:",
        "if (self.request is None or is_asked) and self._max_retries:",
    ),
    _one(
        "commands-of-a-canceled-job-are-not-ended",
        TEARDOWN,
        "to_end = [w for w in workers if w.may_be_there and not self._outages.finished(w)]",
        "to_end: list[Worker] = []",
    ),
    _one(
        "orphaned-runs-are-not-ended",
        RUNNING,
        "            among=there,\n",
        "            among=(),\n",
    ),
    # That a cancellation breaks the teardown or the release off would be mended by the
    # reconciliation: it starts the workflow again, which goes on from its row.
    _one(
        "a-cancellation-during-the-teardown-is-forgotten",
        JOB,
        "await shielded(self._wind_down(), self._canceled_outside)",
        "await shielded(self._wind_down(), lambda: None)",
    ),
    _one(
        "a-canceled-lease-is-not-released",
        LEASE,
        "        await shielded(self._release(), self._canceled_outside)\n",
        "        if self._release_request is not CANCELED_OUTSIDE:\n"
        "            await shielded(self._release(), self._canceled_outside)\n",
    ),
    _one(
        "the-machine-of-a-removed-node-is-not-released",
        DRAIN,
        "        await self._machine.release(reason)\n",
        "",
    ),
    _one(
        "a-command-whose-end-is-unknown-runs-again",
        TEARDOWN,
        "            self._termination.refuse_next_attempt(worker.index)\n",
        "            pass\n",
    ),
    _one(
        "stored-files-of-a-removed-job-stay",
        "workflows.jobs.removal",
        "    await remove_stored(RemoveStored(job_id=job_id))\n",
        "",
    ),
    _one(
        "run-specs-with-secrets-stay",
        JOB,
        "            await discard_run_specs.run_locally(specs)\n",
        "            pass\n",
    ),
    _one(
        "folders-of-runs-stay-on-their-nodes",
        TEARDOWN,
        "        await self._clean(workers)\n",
        "",
    ),
    _one(
        "a-reschedule-does-not-end-the-command-first",
        TEARDOWN,
        "        await self._end(workers)\n",
        "        if not self._termination.is_rescheduled:\n            await self._end(workers)\n",
    ),
    _one(
        "a-job-of-several-workers-that-succeeded-has-failed",
        TERMINATION,
        "        elif failures:\n",
        "        elif failures or len(workers) > 1:\n",
    ),
    _one(
        "a-waiting-job-has-no-limit",
        JOB,
        'lambda: self._attempt.placement is not None, WAIT_INTERVAL, "lost signal"',
        'lambda: self._attempt.placement is not None, None, "lost signal"',
    ),
    _one(
        "a-loss-always-fails-the-job",
        TERMINATION,
        "        if self.restarts < limit:\n",
        "        if False:\n",
    ),
    _one(
        "restarts-have-no-limit",
        TERMINATION,
        "        if self.restarts < limit:\n",
        "        if limit:\n",
    ),
    _one(
        "stored-state-is-not-given-back",
        JOB,
        "        restores = self._snapshots.has_copies\n",
        "        restores = False\n",
    ),
    _one(
        "outputs-are-not-stored",
        TEARDOWN,
        "        with_output = self._stores_output()\n",
        "        with_output = False\n",
    ),
    _one(
        "a-start-of-a-stopped-job-is-forgotten",
        JOB,
        "self._start_again = self._start_again or stops or self._status is JobStatus.STOPPED",
        "self._start_again = self._start_again or stops",
    ),
    _one(
        "a-removal-of-a-region-is-forgotten",
        "workflows.regions.region_lifecycle",
        "            await self._remove(message)\n",
        "            pass\n",
    ),
    _one(
        "a-removal-of-a-provider-is-forgotten",
        "workflows.providers.provider_lifecycle",
        "            await self._remove(message)\n",
        "            pass\n",
    ),
    _one(
        "a-job-runs-on-without-credits",
        "workflows.billing.job_billing",
        "            if self._asked_to_end:\n                await",
        "            if False:\n                await",
    ),
    _one(
        "jobs-of-several-workers-are-never-placed",
        PLANNER,
        "        if best is not None or demand.worker_count == 1:\n",
        "        if demand.worker_count > 1:\n            return None\n"
        "        if best is not None or demand.worker_count == 1:\n",
    ),
    _one(
        "a-cloud-is-asked-only-where-nodes-would-do",
        PLANNER,
        "        return made if nodes is None else nodes\n",
        "        return nodes\n",
    ),
    _one(
        "a-job-that-waits-names-a-node-that-is-not-active",
        "workflows.rules.placement.node_refusals",
        "    if not machine.active:\n        return _INACTIVE\n",
        "    if machine.active:\n        return _INACTIVE\n",
    ),
)


def _at_the_edge(name: str, *changes: tuple[str, str, str]) -> Defect:
    return Defect(name, changes, is_at_the_edge=True)


DEVICE = "workflows.devices.device_lifecycle"
INFERENCE = "workflows.devices.inference"
EDGE: tuple[Defect, ...] = (
    # Either change alone harms nothing: the other one reads the row an hour later at most.
    _at_the_edge(
        "what-was-asked-while-nobody-read-it-is-forgotten",
        (
            DEVICE,
            "        self.wake()  # What is wanted may have changed while nobody read it.\n",
            "",
        ),
        (DEVICE, "        self.wake()\n        try:\n", "        try:\n"),
    ),
    _at_the_edge(
        "a-revision-that-fails-its-health-check-counts-as-running",
        (INFERENCE, "assignment=assignment, failed=switched.failed)", "assignment=assignment)"),
    ),
    _at_the_edge(
        "what-a-device-does-later-is-not-recorded",
        (
            INFERENCE,
            "        await self._steps.record_changes(DeviceChanges(run=run), (event,))\n",
            "",
        ),
    ),
    _at_the_edge(
        "specs-of-a-removed-device-stay",
        (DEVICE, "        await self._inference.discard_specs()\n", ""),
    ),
)


def _federated(name: str, module: str, text: str, other: str) -> Defect:
    return Defect(name, ((module, text, other),), is_federated=True)


LIFECYCLE_OF_FEDERATED = "workflows.federation.federated_lifecycle"
FEES = "activities.billing.federated_fees"
FEDERATED: tuple[Defect, ...] = (
    _federated(
        "a-withdrawn-consent-does-not-end-the-job",
        LIFECYCLE_OF_FEDERATED,
        "        elif review.refusals:\n            why =",
        "        elif False:\n            why =",
    ),
    _federated(
        "the-model-of-a-settled-job-stays",
        LIFECYCLE_OF_FEDERATED,
        "        await withdraw_model(WithdrawModel(federated_id=federated_id))\n"
        "        if not review.is_billed:",
        "        if not review.is_billed:",
    ),
    _federated(
        "a-federated-job-of-one-owner-costs",
        FEES,
        "JobType(job.type), is_one_owner, meter.started_at",
        "JobType(job.type), False, meter.started_at",
    ),
)
DEFECTS: tuple[Defect, ...] = TAKEN_BACK + PLANTED + EDGE + FEDERATED


def plant(name: str) -> None:
    """Let the modules of a defect be loaded with its texts; call this before they are imported.

    Raises: ValueError, when there is no such defect, or a module is imported already.
    """
    defect = next((one for one in DEFECTS if one.name == name), None)
    if defect is None:
        raise ValueError(f"{name}: no such defect; there are {[one.name for one in DEFECTS]}")
    for module, _, _ in defect.changes:
        if module in sys.modules:
            raise ValueError(f"{module} is imported already")
    sys.meta_path.insert(0, _Planter(defect))


@contextmanager
def planting(defect: Defect) -> Iterator[None]:
    """Modules that are imported meanwhile have the texts of a defect."""
    planter = _Planter(defect)
    sys.meta_path.insert(0, planter)
    try:
        yield
    finally:
        sys.meta_path.remove(planter)


def planted_source(source: str, defect: Defect, module: str) -> str:
    """The source of a module with the defect in it.

    Raises: ValueError, when the module does not have a text of the defect once.
    """
    for of, text, other in defect.changes:
        if of != module:
            continue
        if source.count(text) != 1:
            raise ValueError(f"{defect.name}: {module} has this {source.count(text)} times: {text}")
        source = source.replace(text, other)
    return source


class _Planter(MetaPathFinder):
    """Finds the modules of a defect, and loads them with it."""

    def __init__(self, defect: Defect) -> None:
        self._defect = defect

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in {module for module, _, _ in self._defect.changes}:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._defect)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the changed source, and keeps nothing of it."""

    def __init__(self, fullname: str, path: str, defect: Defect) -> None:
        super().__init__(fullname, path)
        self._defect = defect

    def get_code(self, fullname: str) -> CodeType:
        source = planted_source(Path(self.path).read_text("utf-8"), self._defect, fullname)
        code: Any = compile(source, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


if __name__ == "__main__":
    command = [sys.executable, "-m", "tests.simulation.proof", *sys.argv[1:]]
    sys.exit(subprocess.run(command, check=False).returncode)
