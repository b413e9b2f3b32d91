"""A project: its services, its billing, who may do what in it, and what it may use."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.doubles.gcp.access import grants

SERVICES = {
    "compute.googleapis.com": "Compute Engine API",
    "pubsub.googleapis.com": "Cloud Pub/Sub API",
    "logging.googleapis.com": "Cloud Logging API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "cloudbilling.googleapis.com": "Cloud Billing API",
    "serviceusage.googleapis.com": "Service Usage API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
    "cloudquotas.googleapis.com": "Cloud Quotas API",
}


@dataclass
class Project:
    """One project and its settings; `limits` holds what differs from the usual quotas.

    limits: by region (`""` is the whole project) and metric, or by region and
    `family:NVIDIA_H100` for the newer GPUs.
    """

    id: str
    number: str
    created_at: float = field(default_factory=time.time)
    state: str = "ACTIVE"
    billing_account: str = "billingAccounts/012345-6789AB-CDEF01"
    billing_enabled: bool = True
    services: set[str] = field(default_factory=lambda: set(SERVICES))
    bindings: dict[str, set[str]] = field(default_factory=dict)
    """Members by role, such as `serviceAccount:…`."""
    account_bindings: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """Members by role on one service account, by its address."""
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    """What every VM of the project finds in its metadata."""

    @property
    def compute_account(self) -> str:
        """The Compute Engine default service account."""
        return f"{self.number}-compute@developer.gserviceaccount.com"

    @property
    def pubsub_agent(self) -> str:
        return f"service-{self.number}@gcp-sa-pubsub.iam.gserviceaccount.com"

    @property
    def logging_agent(self) -> str:
        """Who writes a sink's messages when it asks for a writer of its own."""
        return f"service-{self.number}@gcp-sa-logging.iam.gserviceaccount.com"

    def grant(self, email: str, *roles: str) -> None:
        for role in roles:
            self.bindings.setdefault(role, set()).add(f"serviceAccount:{email}")

    def take_away(self, email: str, *roles: str) -> None:
        for role in roles:
            self.bindings.get(role, set()).discard(f"serviceAccount:{email}")

    def allows(self, email: str, permission: str, account: str | None = None) -> bool:
        """Whether the caller has a permission in the project, or on that service account of it."""
        member = f"serviceAccount:{email}"
        roles = [role for role, members in self.bindings.items() if member in members]
        if account is not None:
            on_account = self.account_bindings.get(account, {})
            roles += [role for role, members in on_account.items() if member in members]
        return grants(roles, permission)
