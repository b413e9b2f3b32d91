"""The results of a node's onboarding, and each status of the node, as lines for a person."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from workers.runner.commands import PublicApi, Resource
from workers.runner.lifecycle import Tell
from workflows.contracts.events import NodeEvent
from workflows.contracts.statuses import NodeStatus

GB, GIB = 10**9, 2**30
_ENTERED = {
    NodeEvent.REQUESTED: NodeStatus.NEW,
    NodeEvent.CONNECTED: NodeStatus.INSPECTING,
    NodeEvent.PREPARED: NodeStatus.MAINTENANCE,
}
"""The status that a node enters with an event whose type does not name that status."""


def show_onboarding(api: PublicApi, node_id: str, tell: Tell) -> None:
    """Print a node's hardware, requirements, and statuses with their times, from the API."""
    node = api.get(f"/v1/nodes/{node_id}")
    events = api.get(f"/v1/nodes/{node_id}/events?limit=100")["items"]
    lines = (*hardware_lines(node), *requirement_lines(node), *status_lines(events))
    for line in (*lines, *trust_lines(node)):
        tell(line)


def trust_lines(node: Resource) -> Iterator[str]:
    """A warning, when nothing holds jobs off the node's own services; no line otherwise."""
    reason = (node.get("preparation") or {}).get("trusted_only_reason")
    if reason:
        yield f"TRUSTED ONLY: {reason}"
        yield "  A job here may reach what runs on this machine, Temporal too, and so the platform."
        yield "  Run no job here that you do not trust with all of it."


def hardware_lines(node: Resource) -> Iterator[str]:
    """CPUs, memory, disks and GPUs, a line each; none before the node was inspected."""
    hardware = node["hardware"]
    if hardware is None:
        return
    disks = [_disk(disk) for disk in hardware["disks"]]
    gpus = [f"{gpu['index']}: {gpu['name']}{_vram(gpu)}" for gpu in node["gpus"]]
    free = f"{hardware['free_disk_bytes'] / GB:,.1f} GB free"
    found = {
        "CPUs": f"{hardware['cpu_count']} {hardware['cpu_model']}".strip(),
        "memory": f"{hardware['memory_bytes'] / GIB:.1f} GiB",
        "disks": ", ".join([*disks, free]),
        "GPUs": ", ".join(gpus) or "none",
    }
    for what, text in found.items():
        yield f"  {what:<16}{text}"


def requirement_lines(node: Resource) -> Iterator[str]:
    """Each requirement: what the region requires, what was found, and whether it is relaxed."""
    for one in node["requirements"]:
        result = "relaxed" if one["relaxed"] else "passed" if one["passed"] else "failed"
        yield f"  {one['name']:<16}{result:<9}required {one['required']}, found {one['found']}"


def status_lines(events: Sequence[Resource]) -> Iterator[str]:
    """Each status of the node with its time (UTC) and the seconds since the first event.

    events: as the API answers them, newest first.
    """
    ordered = sorted(events, key=lambda event: int(event["position"]))
    for event in ordered:
        if (status := _status_entered(str(event["type"]))) is not None:
            at, first = _instant(event), _instant(ordered[0])
            after = f"+{(at - first).total_seconds():.1f} s"
            yield f"  {status:<16}{at:%H:%M:%S}{after:>10}  {event['message']}"


def _status_entered(event_type: str) -> NodeStatus | None:
    name = event_type.removeprefix("node.")
    if name in set(NodeStatus):
        return NodeStatus(name)
    return {str(known): status for known, status in _ENTERED.items()}.get(event_type)


def _instant(event: Resource) -> datetime:
    return datetime.fromisoformat(str(event["at"]))


def _disk(disk: Resource) -> str:
    return f"{disk['name']} {disk['size_bytes'] / GB:,.0f} GB {disk['transport'] or ''}".strip()


def _vram(gpu: Resource) -> str:
    return f" {gpu['memory_mib'] / 1024:.0f} GiB" if gpu["memory_mib"] else ""
