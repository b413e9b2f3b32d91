"""The traits of each provider kind: the facts about it that rules and workflows need.

A kind with traits is available; what it can do is in `activities/providers/<kind>/kind.py`.
"""

from dataclasses import dataclass

from workflows.contracts.statuses import ProviderKind

DAY_S = 24 * 3600
# https://research.google.com/colaboratory/faq.html
COLAB_TERMS = (
    "Colab forbids SSH shells and distributed computing workers on runtimes that are free of "
    "charge, without a positive balance of compute units, and may end them at any time; on all "
    "runtimes it forbids mining, distributed computing for others, file hosting, "
    "proxies, password cracking, and several accounts to evade limits"
)
"""The restrictions of Google Colab that concern a runtime that is reached over SSH."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of one provider kind; a kind with the defaults creates no machines."""

    is_cloud: bool = False
    """Its machines are created through an API, in cloud regions and zones; else an owner brings
    them."""
    has_own_networks: bool = False
    """Its machines stand in networks of their account, and not in those of strangers."""
    resources: tuple[str, ...] = ()
    """The cloud resources of a provider in the order of creation; removed in reverse."""
    region_resources: tuple[str, ...] = ()
    """The cloud resources of each cloud region, in the same order."""
    preemption_notice_s: int | None = None
    """Seconds between the notice of a preemption and the machine's end; None: no preemptions."""
    ending_limit_s: int = 0
    """For how long at most a machine runs on after its provider has begun to end it."""
    image_disk_gb: int = 0
    """The part of a boot disk that the system takes, without the job's own disk."""
    lifetime_limit_s: int = 365 * DAY_S
    """The longest lifetime of a machine that the provider enforces."""
    quotas_url: str = ""
    """The address at which people raise quotas, with `{project_id}` in it."""
    has_implied_region: bool = False
    """A provider has one region, which enabling it makes, and its removal archives; people create
    no other one, and nothing is stored there."""
    machine_is_image: bool = False
    """A machine is a container of the job's image, without systemd and podman, which its host
    reads."""
    is_of_strangers: bool = False
    """A machine stands at somebody whom nobody knows, who can read all that is on it."""
    notifies: bool = True
    """Its cloud sends notifications of what happens to machines."""
    states_addresses: bool = False
    """Its users or its hosts state the addresses of machines, so each is checked at every
    connection, as one that a person gave."""
    offer_is_machine: bool = False
    """An offer is one machine, which one worker gets; else there may be any number of them."""
    ends_machines: bool = True
    """A machine ends with its lease. Otherwise its owner ends it, and it is never an orphan."""
    only_if_named: bool = False
    """Placement chooses its machines only for jobs that name the kind or the provider, because
    their price of 0 would win every comparison."""
    shortage_limit_s: int = 600
    """How long a shortage is remembered, so that no job asks for the same scope too early."""
    runs_images: bool = True
    """Its machines run jobs that name an image, in a container or as that image."""
    only_for_administrators: bool = False
    """Only an administrator enables it, because its machines stand inside the platform."""
    terms: str = ""
    """The sentence of its terms that whoever enables it has to accept; empty: there is none."""


TRAITS: dict[str, Traits] = {
    ProviderKind.PHYSICAL: Traits(has_own_networks=True),
    ProviderKind.GCP: Traits(
        is_cloud=True,
        has_own_networks=True,
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
        # The shutdown period of a machine that is stopped or deleted; a preempted one has less.
        # https://cloud.google.com/compute/docs/instances/stop-start-instance
        ending_limit_s=90,
        # The Deep Learning images are of this size, and Google refuses a smaller disk.
        image_disk_gb=50,
        # https://cloud.google.com/compute/docs/instances/limit-vm-runtime
        lifetime_limit_s=120 * DAY_S,
        quotas_url="https://console.cloud.google.com/iam-admin/quotas?project={project_id}",
    ),
    ProviderKind.RUNPOD: Traits(
        is_cloud=True,
        has_implied_region=True,
        machine_is_image=True,
        is_of_strangers=True,
        notifies=False,
        states_addresses=True,
    ),
    ProviderKind.VASTAI: Traits(
        is_cloud=True,
        has_implied_region=True,
        offer_is_machine=True,
        machine_is_image=True,
        is_of_strangers=True,
        notifies=False,
        states_addresses=True,
    ),
    ProviderKind.LOCAL: Traits(
        is_cloud=True,
        has_implied_region=True,
        offer_is_machine=True,
        notifies=False,
        only_if_named=True,
        # The one machine there is will be free when its job has ended, and asking costs nothing.
        shortage_limit_s=10,
        only_for_administrators=True,
    ),
    # Its machine is a runtime in the account of the user, who opens it: no stranger has it.
    ProviderKind.COLAB: Traits(
        is_cloud=True,
        has_implied_region=True,
        offer_is_machine=True,
        notifies=False,
        states_addresses=True,
        ends_machines=False,
        only_if_named=True,
        runs_images=False,
        terms=COLAB_TERMS,
    ),
}
"""The traits by provider kind, in the order in which people see them."""
NO_TRAITS = Traits()


def traits_of(kind: str) -> Traits:
    """The traits of a provider kind; a kind that is not available has the defaults."""
    return TRAITS.get(kind, NO_TRAITS)


def cloud_kinds() -> tuple[str, ...]:
    return tuple(str(kind) for kind, traits in TRAITS.items() if traits.is_cloud)


def catalogued_kinds() -> tuple[str, ...]:
    """The clouds that sell by a catalogue of their machine types."""
    return tuple(kind for kind in cloud_kinds() if kind not in rented_kinds())


def rented_kinds() -> tuple[str, ...]:
    """The kinds whose machines are rented from marketplaces, by offers that are read."""
    return tuple(kind for kind in cloud_kinds() if TRAITS[ProviderKind(kind)].has_implied_region)


def kinds_of_strangers() -> tuple[str, ...]:
    """The kinds whose machines stand at somebody whom nobody knows."""
    return tuple(str(kind) for kind, traits in TRAITS.items() if traits.is_of_strangers)


def never_ended_kinds() -> tuple[str, ...]:
    """The clouds whose machines their owners end, and no lease."""
    return tuple(kind for kind in cloud_kinds() if not TRAITS[ProviderKind(kind)].ends_machines)


def longest_ending_s() -> int:
    """The longest time in which a machine of any kind is ended."""
    return max(traits.ending_limit_s for traits in TRAITS.values())


def preemption_notices_s() -> tuple[int, int]:
    """The shortest and the longest notice of all kinds that preempt machines."""
    notices = [traits.preemption_notice_s for traits in TRAITS.values()]
    told = [notice for notice in notices if notice is not None]
    return min(told), max(told)
