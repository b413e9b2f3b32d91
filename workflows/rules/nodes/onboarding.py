"""What is said of a machine while it becomes a node."""

from collections.abc import Collection, Iterable

from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.nodes import Hardware, Preparation, Requirement
from workflows.contracts.statuses import NodeStatus


def first_status_of(services: Collection[str], *, is_leased: bool) -> NodeStatus:
    """A storage node takes up its work by itself, and so does what was made to be used; where jobs
    run on one's own machine, a person decides."""
    storage_alone = tuple(services) == ("storage",)
    return NodeStatus.ACTIVE if storage_alone or is_leased else NodeStatus.MAINTENANCE


def summary_of(hardware: Hardware) -> str:
    """What it is, in a line."""
    gpus = f"{len(hardware.gpus)}×{hardware.gpus[0].name}" if hardware.gpus else "no GPU"
    gib = hardware.memory_bytes / 2**30
    return f"{gpus}, {hardware.cpu_count} CPUs, {gib:.1f} GiB of memory"


def missed_of(requirements: Iterable[Requirement]) -> str:
    """The requirements that it misses, each with what was found; empty when there are none."""
    missed = [one for one in requirements if not one.passed]
    return "; ".join(f"{one.name}: asked {one.required}, found {one.found}" for one in missed)


def lacking_of(offer: MachineOffer, spec: MachineSpec, hardware: Hardware) -> str:
    """What a machine was made with and does not show; empty when it is all there.

    Drivers of GPUs and podman are installed while it starts for the first time.
    """
    lacks = []
    if len(hardware.gpus) < offer.gpu_count:
        found = len(hardware.gpus) or "none"
        lacks.append(f"was made with {offer.gpu_count}×{offer.gpu_type}, shows {found}")
    if spec.containers and "podman" not in hardware.runtimes:
        lacks.append(f"was to have podman, shows {', '.join(hardware.runtimes)}")
    return "; ".join(lacks)


def unreached_of(preparation: Preparation, relaxed: Iterable[str]) -> str:
    """The neighbours that it must reach and does not; empty when there are none."""
    if {"all", "peers"} & set(relaxed) or not preparation.unreachable_peers:
        return ""
    return f"cannot reach {', '.join(preparation.unreachable_peers)} of its region"


def prepared_words(preparation: Preparation, *, exclusive: bool) -> str:
    """What preparing it came to, and what it could not do of what its region wants."""
    said = []
    if preparation.trusted_only_reason:
        said.append(f"trusted only: {preparation.trusted_only_reason}")
    if exclusive and not preparation.closed_logins:
        said.append(
            "other log-ins stay open although its region's nodes serve the platform alone: the "
            "log-in user is not root, and only root may close them"
        )
    if preparation.cache:
        said.append(f"serves the cache of its region at {preparation.cache}")
    if preparation.no_cache_reason:
        said.append(f"serves no cache to its region: {preparation.no_cache_reason}")
    return "; ".join(said) or "is ready"


def closed_words(why: str) -> str:
    """Of a machine that is no node any more, and could not be opened to others again."""
    return (
        f"{why}: its other log-ins may be closed still; to open them, delete "
        "/etc/ssh/sshd_config.d/00-baseload.conf there, or the block of baseload in "
        "/etc/ssh/sshd_config, and reload sshd"
    )
