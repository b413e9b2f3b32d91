"""Pods in the words of the platform: the body of a new one, and what is seen of one."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from activities.providers.image_machines import COMMAND, OFFER, variables_of
from activities.secrets.machine_keys import host_key_fingerprint
from activities.settings import settings
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState
from workflows.rules.catalogue.prices import microcredits_of

SSH_PORT = "22/tcp"
RUNNING = "RUNNING"
TERMINATED = "TERMINATED"
DISK_MICROCREDITS_PER_GB_MONTH = 100_000
"""A container's disk while it runs: 0.10 USD, by `pods/pricing.mdx` of RunPod's documentation of
2026-08-20."""
HOURS_OF_MONTH = 720
_STATES = {
    "PROVISIONING": MachineState.MAKING,
    "STARTING": MachineState.MAKING,
    RUNNING: MachineState.RUNNING,
    "EXITED": MachineState.STOPPED,
    "ERROR": MachineState.STOPPED,
    TERMINATED: MachineState.GONE,
}
"""By RunPod's status. A pod that has exited is there, and may cost money, until it is deleted."""


def pod_body(
    marketplace_name: str, machine_name: str, offer: MachineOffer, spec: MachineSpec
) -> dict[str, Any]:
    """The body of the request for a new pod. Raises: RequestRefused."""
    return {
        "name": marketplace_name,
        "image": spec.image or settings().runpod_image,
        "cloud": offer.zone.upper(),
        "gpu": {"id": offer.provider_offer_id, "count": offer.gpu_count},
        "disk": spec.disk_size_gb,
        "ports": [SSH_PORT],
        "env": dict(variables_of(machine_name, offer, spec)),
        "startSsh": True,
        "args": COMMAND,
    }


def shown(pod: Mapping[str, Any], machine_name: str) -> MachineObservation:
    """The observation of a pod; its host key is the one that the platform has given it."""
    state = _STATES.get(str(pod.get("status")), MachineState.MAKING)
    direct = _mapping(_mapping(pod.get("ssh")).get("direct"))
    update: dict[str, Any] = {}
    if state is MachineState.RUNNING and direct.get("host") and direct.get("port"):
        update = {
            "host": str(direct["host"]),
            "port": int(direct["port"]),
            "user": str(direct.get("username") or "root"),
            "minion_id": host_key_fingerprint(machine_name),
        }
    elif state is MachineState.RUNNING:
        update = {"reason": "RunPod has given it no public port for SSH yet"}
    elif state is MachineState.STOPPED:
        update = {"reason": f"RunPod says that its container is {pod.get('status')}"}
    return MachineObservation(
        state=state,
        zone=str(pod.get("cloud", "")).lower(),
        provider_machine_id=str(pod["id"]),
        microcredits_per_hour=_price(pod),
        began_at=_instant(pod.get("createdAt")),
        offer_label=str(_mapping(pod.get("env")).get(OFFER, "")),
        **update,
    )


def _price(pod: Mapping[str, Any]) -> int | None:
    """Microcredits per hour with the disk, which RunPod's `cost` is without; None: it costs
    nothing now."""
    cost, size_gb = microcredits_of(pod.get("cost")), pod.get("disk")
    if not cost or not isinstance(size_gb, int):
        return cost or None
    return cost + size_gb * DISK_MICROCREDITS_PER_GB_MONTH // HOURS_OF_MONTH


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _instant(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
