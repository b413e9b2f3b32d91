"""Instances in the words of the platform: the body of a new one, and what is seen of one.

Vast.ai starts an SSH server of its own at port 22 in every image, installs one if need be, and has
it running before our script. Nobody knows its host key. So the script starts a second one, with the
host key that the platform has chosen, at a port of its own; the platform uses that port alone.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from activities.providers.image_machines import (
    HOST_KEY,
    OFFER,
    PUBLIC_KEY,
    START,
    variables_of,
)
from activities.secrets.machine_keys import host_key_fingerprint
from activities.settings import settings
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState
from workflows.rules.catalogue.prices import microcredits_of

PORT = 10022
"""The port of our SSH server in the container; Vast.ai gives it another number outside."""
LEAST_DISK_GB = 8
ANYWHERE = "any"
"""The zone of a machine whose country Vast.ai does not state."""
_PUBLISH = f"-p {PORT}:{PORT}"
_ONSTART = f"""(
set -eu
umask 077
sshd="$(command -v sshd || echo /usr/sbin/sshd)"
mkdir -p /etc/baseload /run/sshd
chmod 755 /etc/baseload /run/sshd
printf %s '{{host_key}}' | base64 -d > /etc/baseload/host_key
printf '%s\\n' '{{public_key}}' > /etc/baseload/authorized_keys
"$sshd" -p {PORT} -f /dev/null -h /etc/baseload/host_key -E /etc/baseload/sshd.log \\
  -o PidFile=/etc/baseload/sshd.pid -o AuthorizedKeysFile=/etc/baseload/authorized_keys \\
  -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \\
  -o PermitRootLogin=prohibit-password -o "Subsystem=sftp internal-sftp" \\
  -o SetEnv="PATH=$PATH LD_LIBRARY_PATH=${{{{LD_LIBRARY_PATH:-}}}}"
)
"""
"""Both keys are in the script, because Vast.ai limits what a variable holds."""
_STATES = {
    "running": MachineState.RUNNING,
    "exited": MachineState.STOPPED,
    "offline": MachineState.RUNNING,
    "unknown": MachineState.RUNNING,
}
"""By Vast.ai's status; any other is of a machine in the making. A host that is offline may come
back, and the instance with it; its lease gives it up when it stays away."""
_AWAY = ("offline", "unknown")
HAVE_RUN = ("running", *_AWAY)
"""The statuses of an instance that runs, or runs on unseen."""
_CANNOT_START = "OCI runtime create failed"


def instance_body(
    marketplace_name: str, machine_name: str, offer: MachineOffer, spec: MachineSpec
) -> dict[str, Any]:
    """The body of the acceptance of an offer. Raises: RequestRefused."""
    variables = dict(variables_of(machine_name, offer, spec))
    host_key, public_key = variables.pop(HOST_KEY), variables[PUBLIC_KEY]
    del variables[START]
    return {
        "client_id": "me",
        "image": spec.image or settings().vastai_image,
        "disk": max(spec.disk_size_gb, LEAST_DISK_GB),
        "label": marketplace_name,
        "runtype": "ssh_direc ssh_proxy",
        "onstart": _ONSTART.format(host_key=host_key, public_key=public_key),
        "env": {_PUBLISH: "1", **variables},
        "cancel_unavail": True,
    }


def shown(instance: Mapping[str, Any], machine_name: str) -> MachineObservation:
    """The observation of an instance; its host key is the one that the platform has given it."""
    status = instance.get("actual_status")
    state = _STATES.get(str(status), MachineState.MAKING)
    update: dict[str, Any] = {}
    if is_held(instance):
        state = MachineState.STOPPED
        update = {"reason": "Vast.ai keeps it stopped, because its GPUs are somebody else's"}
    elif _CANNOT_START in str(instance.get("status_msg")):
        state = MachineState.STOPPED
        update = {"reason": f"its container cannot start: {instance['status_msg']}"[:300]}
    elif status in _AWAY:
        update = {"reason": f"Vast.ai says that its host is {status}"}
    elif state is MachineState.STOPPED:
        update = {"reason": f"Vast.ai says that its container is {status}"}
    elif state is MachineState.RUNNING:
        update = _address(instance) or {"reason": "Vast.ai has given it no public port yet"}
        if "host" in update:
            update["minion_id"] = host_key_fingerprint(machine_name)
    return MachineObservation(
        state=state,
        zone=place_of(instance.get("geolocation")),
        provider_machine_id=str(instance["id"]),
        microcredits_per_hour=microcredits_of(instance.get("dph_total")) or None,
        began_at=_instant(instance.get("start_date")),
        offer_label=_variable(instance, OFFER),
        **update,
    )


def is_held(instance: Mapping[str, Any]) -> bool:
    """Whether the instance waits, stopped, for GPUs that it does not have."""
    states = [instance.get(name) for name in ("cur_state", "intended_status", "next_state")]
    return states == ["stopped"] * 3


def place_of(geolocation: Any) -> str:
    """The zone of a machine: the code of its country, which stands at the end (`Texas, US`)."""
    code = str(geolocation or "").rpartition(",")[2].strip().lower()
    return code if len(code) == 2 and code.isascii() and code.isalpha() else ANYWHERE


def _address(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Where our SSH server answers; empty: Vast.ai does not say so yet."""
    host = str(instance.get("public_ipaddr") or "").strip()
    ports = instance.get("ports")
    bindings = ports.get(f"{PORT}/tcp") if isinstance(ports, dict) else None
    first = bindings[0] if isinstance(bindings, list) and bindings else None
    port = str(first.get("HostPort", "")) if isinstance(first, dict) else ""
    return {"host": host, "port": int(port)} if host and port.isdigit() else {}


def _variable(instance: Mapping[str, Any], name: str) -> str:
    pairs = instance.get("extra_env")
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and pair[0] == name:
            return str(pair[1])
    return ""


def _instant(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
