"""The schemas of a reconciliation: the machines that providers list, compared with the leases."""

from datetime import datetime

from api.schemas.base import RequestBody, ResourceId, ResponseBody
from api.schemas.provider_machines import ProviderMachine


class ReconciliationRequest(RequestBody):
    """A reconciliation of one provider of the account, or of all."""

    provider_id: ResourceId | None = None
    end: bool = False
    """Whether orphaned machines are terminated too, which nobody but a person may want."""


class ProviderReconciliation(ResponseBody):
    """What the comparison of one provider's machines with its leases has found."""

    provider_id: str
    name: str
    kind: str
    read_at: datetime
    """When the provider listed its machines."""
    failure: str | None
    """Why the provider could not be asked, so that nothing is known; null: it answered."""
    machine_count: int
    """The machines that carry the provider's ownership label."""
    ending: list[ProviderMachine]
    """Machines whose lease does not hold them any more; they are being terminated."""
    unknown: list[ProviderMachine]
    """Orphaned machines, which no lease names; with `end` they are being terminated."""
    missing: list[str]
    """Ready leases whose machine the provider does not list; they look for it now."""


class Reconciliation(ResponseBody):
    """What was found at each provider, and whether the orphaned machines are being terminated."""

    end: bool
    items: list[ProviderReconciliation]
