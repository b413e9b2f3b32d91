"""Who may do what: roles, the permissions in them, and the permission each method needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

_PROJECT = ("resourcemanager.projects.get",)
_USAGE = ("serviceusage.services.get", "serviceusage.services.list", "serviceusage.quotas.get")

ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "roles/owner": ("*",),
        "roles/viewer": ("*.get", "*.list", "*.getIamPolicy"),
        "roles/browser": _PROJECT,
        "roles/compute.admin": ("compute.*", *_PROJECT, "resourcemanager.projects.list", *_USAGE),
        "roles/compute.viewer": ("compute.*.get", "compute.*.list", *_PROJECT, *_USAGE),
        "roles/pubsub.admin": ("pubsub.*", *_PROJECT, *_USAGE),
        "roles/pubsub.publisher": ("pubsub.topics.publish",),
        "roles/logging.configWriter": ("logging.sinks.*", "logging.exclusions.*", *_PROJECT),
        "roles/iam.serviceAccountUser": (
            "iam.serviceAccounts.actAs",
            "iam.serviceAccounts.get",
            "iam.serviceAccounts.list",
            *_PROJECT,
        ),
        "roles/iam.serviceAccountTokenCreator": (
            "iam.serviceAccounts.get",
            "iam.serviceAccounts.getAccessToken",
            "iam.serviceAccounts.list",
        ),
        "roles/billing.viewer": ("billing.*.get", "billing.*.list"),
        "roles/cloudquotas.viewer": ("cloudquotas.quotas.get", *_PROJECT),
        "roles/serviceusage.serviceUsageConsumer": (*_USAGE, "serviceusage.services.use"),
        "roles/resourcemanager.projectIamAdmin": ("resourcemanager.projects.*IamPolicy", *_PROJECT),
    }
)
"""What of each predefined role matters here; a `*` stands for any part of a permission."""

PROVIDER_ROLES = (
    "roles/compute.admin",
    "roles/pubsub.admin",
    "roles/logging.configWriter",
    "roles/iam.serviceAccountUser",
)
"""What a key of ours is asked to have."""

_VERBS = {"insert": "create", "aggregatedList": "list", "wait": "get", "getFromFamily": "get"}
_OTHERS = {
    "compute.images.getFromFamily": "compute.images.useReadOnly",
    "compute.projects.get": "compute.projects.get",
    "compute.subnetworks.listUsable": "compute.subnetworks.list",
    "cloudresourcemanager.projects.get": "resourcemanager.projects.get",
    "cloudresourcemanager.projects.getIamPolicy": "resourcemanager.projects.getIamPolicy",
    "serviceusage.services.list": "serviceusage.services.list",
    "serviceusage.services.get": "serviceusage.services.get",
    "serviceusage.services.batchGet": "serviceusage.services.get",
    "cloudbilling.projects.getBillingInfo": "resourcemanager.projects.get",
    "iam.projects.serviceAccounts.list": "iam.serviceAccounts.list",
    "iam.projects.serviceAccounts.get": "iam.serviceAccounts.get",
    "cloudquotas.quotaInfos.get": "cloudquotas.quotas.get",
    "cloudquotas.quotaInfos.list": "cloudquotas.quotas.get",
}


_FOR_ALL = ("cloudbilling.services.skus.list",)
"""What is public, where the API is on: the project that asks is that of the key."""


def permission_of(method: str) -> str | None:
    """The permission that a method needs; None: it may be called by anyone."""
    if method.endswith("testIamPermissions") or method in _FOR_ALL:
        return None
    if method in _OTHERS:
        return _OTHERS[method]
    service, *_, resource, verb = method.split(".")
    return f"{service}.{resource}.{_VERBS.get(verb, verb)}"


def grants(roles: Iterable[str], permission: str) -> bool:
    """Whether one of the roles has the permission; an unknown role has none."""
    return any(
        fnmatchcase(permission, pattern) for role in roles for pattern in ROLES.get(role, ())
    )
