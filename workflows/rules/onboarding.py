"""What is said of a machine while it becomes a node."""

from collections.abc import Collection, Iterable

from workflows.contracts.node import Hardware, Preparation, Requirement
from workflows.contracts.states import NodeStatus


def first_status_of(services: Collection[str]) -> NodeStatus:
    """A storage node takes up its work by itself; where jobs run, a person decides."""
    storage_alone = tuple(services) == ("storage",)
    return NodeStatus.ACTIVE if storage_alone else NodeStatus.MAINTENANCE


def summary_of(hardware: Hardware) -> str:
    """What it is, in a line."""
    gpus = f"{len(hardware.gpus)}×{hardware.gpus[0].name}" if hardware.gpus else "no GPU"
    gib = hardware.memory_bytes / 2**30
    return f"{gpus}, {hardware.cpu_count} CPUs, {gib:.1f} GiB of memory"


def missed_of(requirements: Iterable[Requirement]) -> str:
    """The requirements that it misses, each with what was found; empty when there are none."""
    missed = [one for one in requirements if not one.passed]
    return "; ".join(f"{one.name}: asked {one.required}, found {one.found}" for one in missed)


def unreached_of(preparation: Preparation, relaxed: Iterable[str]) -> str:
    """The neighbours that it must reach and does not; empty when there are none."""
    if {"all", "peers"} & set(relaxed) or not preparation.unreachable_peers:
        return ""
    return f"cannot reach {', '.join(preparation.unreachable_peers)} of its region"
