"""Events: the typed, append-only history of a resource, for people and clients.

The values of the enums are public, and clients rely on them.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import Field, JsonValue

from workflows.contracts.base import Contract
from workflows.contracts.reservations import HostnameState


class ProviderEvent(StrEnum):
    """The types of a provider's events."""

    ARCHIVED = "provider.archived"
    ENABLING = "provider.enabling"
    FAILED = "provider.failed"
    MACHINE_ENDED = "provider.machine-ended"
    MACHINE_NOT_ENDED = "provider.machine-not-ended"
    NOT_RECONCILED = "provider.not-reconciled"
    NOTIFICATIONS_LOST = "provider.notifications-lost"
    NOTIFICATIONS_RECEIVED = "provider.notifications-received"
    ORPHANED_MACHINE = "provider.orphaned-machine"
    PRICES_READ = "provider.prices-read"
    PRICES_STALE = "provider.prices-stale"
    READY = "provider.ready"
    RECONCILED = "provider.reconciled"
    REMOVAL_REFUSED = "provider.removal-refused"
    REMOVING = "provider.removing"
    REQUEST_PARKED = "provider.request-parked"
    REQUESTED = "provider.requested"
    UNCHECKED = "provider.unchecked"


class RegionEvent(StrEnum):
    """The types of a region's events."""

    ARCHIVED = "region.archived"
    FAILED = "region.failed"
    HEALTHY = "region.healthy"
    OFFLINE = "region.offline"
    PROVISIONING = "region.provisioning"
    REMOVAL_REFUSED = "region.removal-refused"
    REMOVING = "region.removing"
    REQUEST_PARKED = "region.request-parked"
    REQUESTED = "region.requested"
    RESOURCE_MADE = "region.resource-made"
    STORAGE_ADDED = "region.storage-added"
    STORAGE_NOT_FILLED = "region.storage-not-filled"
    STORAGE_NOT_REPLACED = "region.storage-not-replaced"
    STORAGE_REPLACED = "region.storage-replaced"
    UNDONE = "region.undone"


class NodeEvent(StrEnum):
    """The types of a node's events."""

    ACTIVE = "node.active"
    ARCHIVED = "node.archived"
    BACK = "node.back"
    CACHE_FULL = "node.cache-full"
    CONNECTED = "node.connected"
    CONNECTING = "node.connecting"
    FAILED = "node.failed"
    FOUND = "node.found"
    GPU_HELD = "node.gpu-held"
    HOST_DISTRUSTED = "node.host-distrusted"
    HOST_KEY_REFUSED = "node.host-key-refused"
    IDLE_WORKLOAD_NOT_SWITCHED = "node.idle-workload-not-switched"
    IDLE_WORKLOAD_OFF = "node.idle-workload-off"
    IDLE_WORKLOAD_ON = "node.idle-workload-on"
    INCOMPLETE = "node.incomplete"
    INSPECTED = "node.inspected"
    JOBS_NOT_NOTIFIED = "node.jobs-not-notified"
    LEASED = "node.leased"
    LOGINS_CLOSED = "node.logins-closed"
    MACHINE_ENDING = "node.machine-ending"
    MACHINE_LOST = "node.machine-lost"
    MACHINE_NOT_GONE = "node.machine-not-gone"
    MAINTENANCE = "node.maintenance"
    MOVE_REFUSED = "node.move-refused"
    MOVED = "node.moved"
    NOT_INSPECTED = "node.not-inspected"
    NOT_REACHED = "node.not-reached"
    OFFLINE = "node.offline"
    ORPHANED_RUNS_ENDED = "node.orphaned-runs-ended"
    ORPHANED_RUNS_LEFT = "node.orphaned-runs-left"
    PREPARED = "node.prepared"
    PREPARING = "node.preparing"
    PROTOCOL_VIOLATED = "node.protocol-violated"
    REBOOT_REFUSED = "node.reboot-refused"
    REBOOTING = "node.rebooting"
    REMOVAL_REFUSED = "node.removal-refused"
    REMOVING = "node.removing"
    REQUEST_PARKED = "node.request-parked"
    REQUESTED = "node.requested"
    RESTARTED = "node.restarted"
    RESTARTING = "node.restarting"
    RUNS_LEFT = "node.runs-left"
    STATUS_NOT_SHOWN = "node.status-not-shown"


class LeaseEvent(StrEnum):
    """The types of a lease's events."""

    COST_UNKNOWN = "lease.cost-unknown"
    CREATING = "lease.creating"
    ENDING = "lease.ending"
    HOLDER_NOT_NOTIFIED = "lease.holder-not-notified"
    NOT_RELEASED = "lease.not-released"
    NOT_SEEN = "lease.not-seen"
    OFFER_REFUSED = "lease.offer-refused"
    READY = "lease.ready"
    REFUSED = "lease.refused"
    RELEASED = "lease.released"
    RELEASING = "lease.releasing"
    REQUEST_PARKED = "lease.request-parked"
    REQUESTED = "lease.requested"
    SEEN = "lease.seen"
    TERMINATED_OTHERWISE = "lease.terminated-otherwise"


class JobEvent(StrEnum):
    """The types of a job's events."""

    ARCHIVED = "job.archived"
    AWAITS_DATA = "job.awaits-data"
    BILLING_FAILED = "job.billing-failed"
    CANCELED = "job.canceled"
    DATA_PROGRESS = "job.data-progress"
    DATA_STAGED = "job.data-staged"
    DATASTORE_AWAY = "job.datastore-away"
    DELIVERED = "job.delivered"
    DELIVERING = "job.delivering"
    ENDING = "job.ending"
    FAILED = "job.failed"
    FINISHED = "job.finished"
    HOSTNAME_CONFLICT = "job.hostname-conflict"
    HOSTNAME_NOT_PUBLISHED = "job.hostname-not-published"
    HOSTNAME_PUBLISHED = "job.hostname-published"
    IDLE = "job.idle"
    MACHINE_STAYS = "job.machine-stays"
    NOT_DELIVERED = "job.not-delivered"
    NOT_STORED = "job.not-stored"
    PLACED = "job.placed"
    PREEMPTION_NOTICED = "job.preemption-noticed"
    PREEMPTION_WITHDRAWN = "job.preemption-withdrawn"
    REACHABLE = "job.reachable"
    REMOVING = "job.removing"
    REQUEST_PARKED = "job.request-parked"
    REQUESTED = "job.requested"
    RESCHEDULED = "job.rescheduled"
    RESTARTING = "job.restarting"
    RUNNING = "job.running"
    STAGING = "job.staging"
    STATE_NOT_SAVED = "job.state-not-saved"
    STATE_RESTORED = "job.state-restored"
    STATE_SAVED = "job.state-saved"
    STOPPED = "job.stopped"
    STORED = "job.stored"
    UNREACHABLE = "job.unreachable"
    UPLOADING = "job.uploading"
    USAGE_REFUSED = "job.usage-refused"
    VOLUME_NOT_STORED = "job.volume-not-stored"
    VOLUME_STORED = "job.volume-stored"
    WAITING = "job.waiting"
    WORKER_ABANDONED = "job.worker-abandoned"
    WORKER_EXITED = "job.worker-exited"


HOSTNAME_STATES = {
    JobEvent.HOSTNAME_PUBLISHED: HostnameState.PUBLISHED,
    JobEvent.HOSTNAME_CONFLICT: HostnameState.CONFLICT,
    JobEvent.HOSTNAME_NOT_PUBLISHED: HostnameState.NOT_PUBLISHED,
}
"""The events of a job about the hostname of its reservation, by what the node has said."""


class PlatformEvent(StrEnum):
    """The types of events of the installation, which the administrator's account has."""

    PROTOCOL_VIOLATED = "platform.protocol-violated"
    WORKFLOWS_LOST = "platform.workflows-lost"


class BillingEvent(StrEnum):
    """The types of events of the account that pays, about how long its balance lasts."""

    RUNWAY_10MIN = "billing.runway-10min"
    RUNWAY_1H = "billing.runway-1h"
    RUNWAY_24H = "billing.runway-24h"
    RUNWAY_LONGER = "billing.runway-longer"


class Event(Contract):
    """One entry in the history of a resource.

    type: a value of an enum of this module, such as `node.inspected`.
    """

    type: str
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)


class RecordedEvent(Event):
    """An event as it is stored, unique on (resource_id, sequence, index)."""

    id: str
    resource_id: str
    account_id: str
    sequence: int
    at: datetime
