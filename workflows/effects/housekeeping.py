"""The effect of housekeeping."""

from workflows.contracts.base import Contract
from workflows.effects.effect import Effect


class RemoveExpired(Contract):
    """Remove rows and uploads whose retention has passed."""


class ExpiredRemoved(Contract):
    """How many of each kind were removed."""

    outbox_rows: int = 0
    idempotency_keys: int = 0
    used_links: int = 0
    invitations: int = 0
    """Those that were accepted or withdrawn, or have expired."""
    deployment_targets: int = 0
    """Devices of deployments that have ended."""
    audit_entries: int = 0
    uploads: int = 0
    job_inputs: int = 0
    """Datasets that were made for jobs, of which the removal was asked for."""
    jobs_with_snapshots: int = 0
    """Ended jobs whose state snapshots had stayed, because their workflow was lost."""
    postal_addresses: int = 0
    """Boot-drive requests that have ended, of which the postal address was removed."""


remove_expired = Effect(
    "remove_expired",
    RemoveExpired,
    ExpiredRemoved,
    start_to_close_s=900,
    heartbeat_s=60,
)
"""Each batch is a commit of its own, so an attempt that is cut off has not worked in vain."""
