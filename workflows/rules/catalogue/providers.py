"""The traits of each provider kind: the facts about it that rules and workflows need.

A kind with traits is available; what it can do is in `activities/providers/<kind>/kind.py`.
"""

from dataclasses import dataclass

from workflows.contracts.statuses import ProviderKind

DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts of one kind. The defaults are those of a kind that makes no machines."""

    is_cloud: bool = False
    """Its machines are created through an API, in cloud regions and zones; else an owner brings
    them."""
    resources: tuple[str, ...] = ()
    """What a provider has once in its cloud, in the order of making; removed in the reverse."""
    region_resources: tuple[str, ...] = ()
    """What each region has of its own in its cloud, as `resources`."""
    preemption_notice_s: int | None = None
    """Between the decision to preempt a machine and its end; None: it preempts none."""
    image_disk_gb: int = 0
    """What the system takes of a boot disk; a job's own disk comes on top."""
    lifetime_limit_s: int = 365 * DAY_S
    """The longest after which the provider ends a machine by itself."""
    quotas_url: str = ""
    """Where people have quotas raised, with `{project_id}` in it."""


TRAITS: dict[str, Traits] = {
    ProviderKind.PHYSICAL: Traits(),
    ProviderKind.GCP: Traits(
        is_cloud=True,
        resources=(
            "topic",
            "subscription",
            "sink",
            "publisher",
            "network",
            "ssh-firewall",
            "inner-firewall",
        ),
        region_resources=("subnetwork",),
        # https://cloud.google.com/compute/docs/instances/preemptible
        preemption_notice_s=30,
        # The Deep Learning images are of this size, and Google refuses a smaller disk.
        image_disk_gb=50,
        # https://cloud.google.com/compute/docs/instances/limit-vm-runtime
        lifetime_limit_s=120 * DAY_S,
        quotas_url="https://console.cloud.google.com/iam-admin/quotas?project={project_id}",
    ),
}
"""By the name of the kind, in the order in which people are told of them."""
NO_TRAITS = Traits()


def traits_of(kind: str) -> Traits:
    """Those of a kind that is not available are the defaults."""
    return TRAITS.get(kind, NO_TRAITS)


def cloud_kinds() -> tuple[str, ...]:
    return tuple(str(kind) for kind, traits in TRAITS.items() if traits.is_cloud)


def preemption_notices_s() -> tuple[int, int]:
    """The shortest and the longest notice of all kinds that preempt machines."""
    notices = [traits.preemption_notice_s for traits in TRAITS.values()]
    told = [notice for notice in notices if notice is not None]
    return min(told), max(told)
