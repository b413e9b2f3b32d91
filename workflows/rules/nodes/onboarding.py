"""The statuses and messages of onboarding."""

from collections import Counter
from collections.abc import Collection, Iterable

from workflows.contracts.errors import HOST_KEY_MISMATCH, NODE_UNREACHABLE
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.nodes import Hardware, Preparation, Requirement
from workflows.contracts.statuses import NodeStatus
from workflows.rules.counts import counted
from workflows.rules.nodes.offered import unlike_offer
from workflows.rules.nodes.requirements import ALL, PEERS

TRIES = 12
"""How often a node that was in use gets another leased machine before it waits for a person."""


def first_status_of(services: Collection[str], *, is_leased: bool) -> NodeStatus:
    """The status of a node after its onboarding.

    Storage nodes and nodes with a leased machine become active by themselves; a person activates
    a compute node on an own machine.
    """
    storage_alone = tuple(services) == ("storage",)
    return NodeStatus.ACTIVE if storage_alone or is_leased else NodeStatus.MAINTENANCE


def summary_of(hardware: Hardware) -> str:
    """The hardware of a machine in one line."""
    models = Counter(gpu.name for gpu in hardware.gpus)
    gpus = ", ".join(f"{count}×{name}" for name, count in models.items()) or "no GPU"
    gib = hardware.memory_bytes / 2**30
    return f"{gpus}, {counted(hardware.cpu_count, 'CPU')}, {gib:.1f} GiB of memory"


def missed_of(requirements: Iterable[Requirement]) -> str:
    """The requirements that a node misses, each with what was found; empty: none."""
    missed = [one for one in requirements if not one.passed]
    return "; ".join(f"{one.name}: asked {one.required}, found {one.found}" for one in missed)


def lacking_of(offer: MachineOffer, spec: MachineSpec, hardware: Hardware) -> str:
    """What a machine was created with and does not have yet; empty: nothing is lacking.

    GPU drivers and podman are installed during the first boot of a machine. A rented machine is
    compared with all that its host offered, because hosts may lie.
    """
    if offer.provider_offer_id:
        return unlike_offer(offer, spec, hardware)
    lacks = []
    if len(hardware.gpus) < offer.gpu_count:
        found = len(hardware.gpus) or "none"
        lacks.append(f"was created with {offer.gpu_count}×{offer.gpu_type}, has {found}")
    if spec.containers and "podman" not in hardware.runtimes:
        lacks.append(f"was created with podman, has {', '.join(hardware.runtimes)}")
    return "; ".join(lacks)


def unreached_of(preparation: Preparation, relaxed: Iterable[str]) -> str:
    """The peers that a node must reach and does not; empty: none."""
    if {ALL, PEERS} & set(relaxed) or not preparation.unreachable_peers:
        return ""
    return f"cannot reach {', '.join(preparation.unreachable_peers)} of its region"


def describe_preparation(preparation: Preparation, *, exclusive: bool) -> str:
    """The message of a node's preparation: its result, and what could not be done."""
    parts = []
    if preparation.trusted_only_reason:
        parts.append(f"trusted only: {preparation.trusted_only_reason}")
    if preparation.no_run_root_reason:
        reason = preparation.no_run_root_reason
        parts.append(f"takes no jobs with apt packages unless its region allows them: {reason}")
    if preparation.no_confinement_reason and preparation.job_user:
        parts.append(f"takes no federated jobs: {preparation.no_confinement_reason}")
    if exclusive and not preparation.closed_logins:
        parts.append(
            "other logins stay open although nodes of this region serve the platform alone: the "
            "login user is not root, and only root may close them"
        )
    if preparation.cache:
        parts.append(f"serves the region cache at {preparation.cache}")
    if preparation.no_cache_reason:
        parts.append(f"does not serve the region cache: {preparation.no_cache_reason}")
    return "; ".join(parts) or "is ready"


def shown_cause(kind: str) -> str:
    """The type of a failure as an event of the first connection shows it.

    Whoever gives an address must not learn that a machine with another host key answers there.
    """
    return NODE_UNREACHABLE if kind == HOST_KEY_MISMATCH else kind


def describe_loss(kind: str, message: str) -> str:
    """The reason why a node in use is not reached; the key that was found is nobody's business."""
    if kind != HOST_KEY_MISMATCH:
        return message
    return f"{message}; another host key does: the machine was reinstalled, or is another one"


def describe_closed_logins(why: str, *, exclusive: bool) -> str:
    """The message of a removed node whose logins could not be restored."""
    key = "delete the line of baseload in authorized_keys there"
    if not exclusive:
        return f"{why}: the machine may still let the region's key in; {key}"
    return (
        f"{why}: other logins of the machine may still be closed; to open them, delete "
        "/etc/ssh/sshd_config.d/00-baseload.conf there, or the block of baseload in "
        f"/etc/ssh/sshd_config, and reload sshd; then {key}"
    )
