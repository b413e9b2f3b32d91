"""The APIs and roles that a Google Cloud project must have, and those that are useful."""

from datetime import UTC, datetime

CONSOLE = "https://console.cloud.google.com"
APIS = ("compute", "pubsub", "logging", "cloudresourcemanager", "cloudbilling")
"""APIs without which the platform can create nothing."""
USEFUL_APIS = {
    "iam": "without it, the right to use the project's service account cannot be checked",
    "cloudquotas": "without it, the quotas of H100 and newer GPUs are unknown",
}
ROLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "compute.admin": (
        "Compute Admin",
        (
            "compute.instances.create", "compute.instances.delete", "compute.disks.create",
            "compute.networks.create", "compute.subnetworks.create", "compute.firewalls.create",
            "compute.regions.get",
        ),
    ),
    "pubsub.admin": (
        "Pub/Sub Admin",
        (
            "pubsub.topics.create", "pubsub.topics.setIamPolicy", "pubsub.subscriptions.create",
            "pubsub.subscriptions.consume",
        ),
    ),
    "logging.configWriter": (
        "Logs Configuration Writer",
        ("logging.sinks.create", "logging.sinks.get", "logging.sinks.delete"),
    ),
    "iam.serviceAccountUser": ("Service Account User", ("iam.serviceAccounts.actAs",)),
}  # fmt: skip
"""Each required role with its name and those of its permissions that we use."""
USEFUL_ROLES: dict[str, tuple[str, str]] = {
    "cloudquotas.viewer": ("cloudquotas.quotas.get", USEFUL_APIS["cloudquotas"]),
}
"""Each useful role with the permission that we use, and what is unknown without it."""
AGENT_HAS_ITS_ROLE_SINCE = datetime(2021, 4, 8, tzinfo=UTC)
"""The Pub/Sub service agent of a project that was created earlier may not create tokens."""
TOKEN_CREATOR = "roles/iam.serviceAccountTokenCreator"  # noqa: S105 - a role
