"""What a project at Google must have for us, and what helps: APIs, roles, and where to get them."""

from datetime import UTC, datetime

CONSOLE = "https://console.cloud.google.com"
APIS = ("compute", "pubsub", "logging", "cloudresourcemanager", "cloudbilling")
"""Without one of these nothing can be made."""
USEFUL_APIS = {
    "iam": "else nobody can look whether machines may be made with the project's service account",
    "cloudquotas": "else the quotas of H100 and newer GPUs are not known",
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
"""Role to its name and the permissions of it that we use."""
USEFUL_ROLES: dict[str, tuple[str, str]] = {
    "cloudquotas.viewer": ("cloudquotas.quotas.get", USEFUL_APIS["cloudquotas"]),
}
"""Role to the permission of it that we use, and what is not known without it."""
AGENT_HAS_ITS_ROLE_SINCE = datetime(2021, 4, 8, tzinfo=UTC)
"""Projects made before have a Pub/Sub service agent that may make no tokens."""
TOKEN_CREATOR = "roles/iam.serviceAccountTokenCreator"  # noqa: S105 - a role
