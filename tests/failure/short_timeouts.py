"""What the worker under test changes in the workflows: shorter waits, and names for calls.

Nothing of it changes what is done, or in which order.
"""

from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any

from temporalio import workflow

from tests.failure.all_cases import cases
from tests.failure.cases import BY_KILLING, Mode, id_part
from tests.failure.pairs import pairs, stubs
from workflows.artifacts import artifact_lifecycle, regional_transfer
from workflows.billing import job_billing
from workflows.datastores import datastore_lifecycle
from workflows.devices import deployment_lifecycle, device_lifecycle, inference
from workflows.effects.effect import Effect
from workflows.federation import federated_lifecycle
from workflows.hosts import connection, outage
from workflows.jobs import awaited_data, delivery, job_lifecycle, node_outages, teardown
from workflows.leases import lease_lifecycle
from workflows.nodes import leased_machine, running_jobs
from workflows.placement import loop
from workflows.providers import machine_reconciliation, notifications, provider_lifecycle
from workflows.reconciliation import reconcilers
from workflows.regions import cloud_resources, region_lifecycle, storage_replacement

LOST_WORKER_S = 5.0
SILENCE_S = 1.5
HUNG_S = 2.0
GIVEN_UP_S = 5.0

SHORTENED: tuple[tuple[ModuleType, str, float], ...] = (
    (job_lifecycle, "WAIT_INTERVAL", 0.2),
    (awaited_data, "LOOK_INTERVAL", 0.5),
    (delivery, "FIRST_SLOT_INTERVAL", 0.2),
    (teardown, "STORE_LIMIT", 120),
    (node_outages, "OUTAGE_POLL_INTERVAL", 2),
    (connection, "FIRST_INTERVAL", 0.3),
    (outage, "REFUSED_KEY_INTERVAL", 0.3),
    (connection, "REBOOT_INTERVAL", 0.2),
    (running_jobs, "DRAIN_INTERVAL", 0.2),
    (running_jobs, "END_INTERVAL", 0.3),
    (running_jobs, "NOTIFY_AGAIN_INTERVAL", 2),
    (leased_machine, "POLL_INTERVAL_MIN", 2),
    (leased_machine, "RELEASE_POLL_MIN", 0.2),
    (leased_machine, "RETRY_INTERVAL_MIN", 0.1),
    (lease_lifecycle, "POLL_INTERVAL", 1),
    (lease_lifecycle, "RELEASE_INTERVAL", 0.3),
    (notifications, "FEED_ERROR_INTERVAL", 0.3),
    (cloud_resources, "POLL_INTERVAL_MIN", 0.3),
    (region_lifecycle, "OFFLINE_INTERVAL", 0.3),
    (storage_replacement, "SOON", 0.05),
    (storage_replacement, "AGAIN", 0.2),
    (region_lifecycle, "REMOVAL_INTERVAL", 0.2),
    (provider_lifecycle, "REMOVAL_INTERVAL", 0.2),
    (datastore_lifecycle, "OFFLINE_INTERVAL", 0.3),
    (federated_lifecycle, "REVIEW_INTERVAL", 0.5),
    (federated_lifecycle, "END_INTERVAL", 0.3),
    (datastore_lifecycle, "FORGET_INTERVAL", 0.3),
    (regional_transfer, "PAUSE", 0.3),
    (machine_reconciliation, "RECONCILIATION_INTERVAL", 0.5),
    (machine_reconciliation, "UNRECONCILED_LIMIT", 0),
    (artifact_lifecycle, "FIRST_PROGRESS_INTERVAL", 0.2),
    (artifact_lifecycle, "REMOVAL_INTERVAL", 0.2),
    (device_lifecycle, "UPKEEP_INTERVAL", 5),
    (inference, "LOSS_PAUSE", 0.2),
    (deployment_lifecycle, "LEAST_INTERVAL", 0.1),
    (deployment_lifecycle, "COUNT_INTERVAL", 1),
    (loop, "QUIET_INTERVAL", 2),
    (reconcilers, "RELAY_INTERVAL", 1),
    (job_billing, "SHORTEST_WAIT", 1),
    (job_billing, "ENDING_WAIT", 30),
)


def install() -> None:
    """Once in a process, before its workers begin."""
    for module, name, seconds in SHORTENED:
        setattr(module, name, timedelta(seconds=seconds))
    Effect._options = _options  # type: ignore[method-assign]


def case_of(workflow_id: str) -> str:
    """The name of the case that a workflow belongs to; of a job in no case, its id."""
    noun, _, rest = workflow_id.partition("/")
    name = rest.partition("/")[0]
    if noun != "job":
        return name
    part = name.removeprefix("job-")
    return _names_of_parts().get(part, part)


@cache
def _names_of_parts() -> dict[str, str]:
    return {id_part(case.name): case.name for case in cases()}


def stub_of(lifecycle: str, activity_id: str, effect: str) -> str:
    """What a call is by its id; a local one has a number only, and is the lifecycle's own effect
    of that activity."""
    stub, found, _ = activity_id.partition("/")
    if found:
        return stub
    asked = {pair.stub for pair in pairs() if pair.lifecycle == lifecycle}
    same = [name for name in sorted(asked) if stubs()[name].name == effect]
    return effect if effect in asked or len(same) != 1 else same[0]


_planned = Effect._options
_names = {id(effect): name for name, effect in stubs().items()}


def _options(self: Effect[Any, Any], command: Any) -> dict[str, Any]:
    chosen = _planned(self, command)
    stub = _names[id(self)]
    chosen["activity_id"] = f"{stub}/{workflow.uuid4()}"
    chosen["retry_policy"].initial_interval = timedelta(seconds=0.1)
    chosen["retry_policy"].maximum_interval = timedelta(seconds=1)
    _, _, told = case_of(workflow.info().workflow_id).partition("-")
    hit, _, mode = told.partition("-")
    if hit == stub and mode == Mode.HANGS:
        _shorten(chosen, heartbeat_s=SILENCE_S, start_to_close_s=HUNG_S)
        if chosen["schedule_to_close_timeout"] is not None:
            chosen["schedule_to_close_timeout"] = timedelta(seconds=GIVEN_UP_S)
    elif hit == stub and mode in BY_KILLING:
        _shorten(chosen, heartbeat_s=LOST_WORKER_S, start_to_close_s=LOST_WORKER_S)
    return chosen


def _shorten(chosen: dict[str, Any], *, heartbeat_s: float, start_to_close_s: float) -> None:
    """The first of the limits that ends what says nothing any more."""
    if chosen["heartbeat_timeout"] is not None:
        chosen["heartbeat_timeout"] = timedelta(seconds=heartbeat_s)
    else:
        shorter = min(chosen["start_to_close_timeout"], timedelta(seconds=start_to_close_s))
        chosen["start_to_close_timeout"] = shorter
