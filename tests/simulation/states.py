"""The states of each lifecycle, and what can go wrong or be asked in them: data alone."""

from enum import StrEnum

from tests.simulation.contracts import Verb
from workflows.contracts import statuses
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.datastores import DatastoreStatus

STATUSES: dict[str, type[StrEnum]] = {
    "JobLifecycle": statuses.JobStatus,
    "NodeLifecycle": statuses.NodeStatus,
    "LeaseLifecycle": statuses.LeaseStatus,
    "RegionLifecycle": statuses.RegionStatus,
    "ProviderLifecycle": statuses.ProviderStatus,
    "ArtifactLifecycle": ArtifactStatus,
    "DatastoreLifecycle": DatastoreStatus,
}
OF_THEIR_OWN = frozenset({"DeviceLifecycle", "DeploymentLifecycle", "FederatedLifecycle"})
"""The lifecycles whose lives are those of `edge/`, without nodes and jobs, and of `federation/`."""
FINAL = ("archived", "released", "refused", "finished", "failed", "canceled")
JOB, NODE, LEASE, REGION, PROVIDER, ARTIFACT, DATASTORE = STATUSES
EVERYWHERE = (
    *("kill", "kill planning", "api away", "restart", "upgrade", "roll", "rollback"),
    *("forget", "restore", "away"),
)
"""Faults of worker processes and of the engine, which meet all lifecycles."""
MACHINE = (
    *("machine_unreachable", "machine_reboots", "machine_moves", "machine_lost", "machine_wiped"),
    *("clock_jumps", "supervisor_killed", "disk_full", "machine_lies", "machine_suspends"),
)
CLOUD = (
    *("cloud_hangs", "cloud_refuses", "cloud_forgets", "lists_lag", "makes_late", "makes_twice"),
    *("no_capacity", "feed_silent", "key_revoked", "key_late", "boots_mute"),
)
END = ("preempted", "deadline")
FAULTS: dict[str, tuple[str, ...]] = {
    JOB: (*MACHINE, *END, "process_crashes", "process_hangs", "store_away", "site_away"),
    NODE: (*MACHINE, *END, "site_away"),
    LEASE: (*CLOUD, *END),
    REGION: (*CLOUD, "site_away"),
    PROVIDER: CLOUD,
    ARTIFACT: ("store_away",),
    DATASTORE: ("share_away", "site_away"),
}
"""Faults of the world that can meet each lifecycle, by the names of `Outside.faults`."""
VERBS: dict[str, tuple[Verb, ...]] = {
    JOB: (Verb.CANCEL, Verb.DISCARD, Verb.STOP, Verb.START, Verb.REMOVE),
    NODE: (
        *(Verb.MAINTAIN, Verb.ACTIVATE, Verb.REFRESH, Verb.REBOOT),
        *(Verb.REMOVE, Verb.FORCE_REMOVE, Verb.RESCHEDULE_REMOVE, Verb.REPLACE),
    ),
    LEASE: (Verb.KILL,),
    REGION: (Verb.REFRESH, Verb.REMOVE, Verb.FORCE_REMOVE),
    PROVIDER: (Verb.RECHECK, Verb.REMOVE, Verb.FORCE_REMOVE),
    ARTIFACT: (Verb.RETRY, Verb.REMOVE),
    DATASTORE: (Verb.REFRESH, Verb.REMOVE),
}
"""What people may ask of each."""


def open_states(lifecycle: str) -> list[str]:
    """Those in which a workflow serves the resource."""
    return [
        state.value
        for state in STATUSES[lifecycle]
        if state.value not in FINAL
        or (state.value == "failed" and lifecycle in (NODE, ARTIFACT, DATASTORE))
    ]
