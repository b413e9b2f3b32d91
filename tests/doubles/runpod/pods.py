"""RunPod's pods: what is kept of each, and their life from provisioning to the end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.doubles.rented.boot import Address, Boot, Machine
from tests.doubles.rented.clock import Clock, rfc3339
from tests.doubles.rented.faults import IN_THE_MACHINE, Fault, FaultKind, Faults
from tests.doubles.rented.meter import USD, Meter, disk_price
from tests.doubles.runpod.catalogue import Catalogue

DISK_USD = 0.10
"""A GB for a month: of a container's disk while it runs, of a volume's at any time."""
STOPPED_DISK_USD = 0.20
"""A GB of a volume for a month while the pod is stopped."""
SSH = "22/tcp"
ACTIONS = {
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "ERROR": ["start", "terminate"],
    "TERMINATED": [],
}


@dataclass
class Durations:
    """In the cloud's seconds. notices_s: from the loss of a host until the pod says so."""

    provisioning_s: float = 5.0
    starting_s: float = 60.0
    notices_s: float = 30.0


@dataclass
class Pod:
    """asked: the body it was made of; gpu: what it really has; life: grows at each change, so that
    what was meant for an earlier one is dropped; fault: what is wrong with its machine."""

    id: str
    asked: dict[str, Any]
    gpu: tuple[str, int]
    usd: float
    env: dict[str, str]
    created_at: float
    started_at: float | None = None
    status: str = "PROVISIONING"
    life: int = 0
    address: Address | None = None
    has_ports: bool = False
    fault: Fault | None = None

    @property
    def name(self) -> str:
        return str(self.asked["name"])

    @property
    def cloud(self) -> str:
        return str(self.asked.get("cloud", "SECURE"))

    @property
    def ports(self) -> list[str]:
        return list(self.asked.get("ports", []))

    def has(self, kind: FaultKind) -> bool:
        return self.fault is not None and self.fault.kind is kind


@dataclass
class Pods:
    """Every pod that is not deleted; made: how many there ever were."""

    clock: Clock
    boot: Boot
    meter: Meter
    catalogue: Catalogue
    faults: Faults
    durations: Durations = field(default_factory=Durations)
    sshd_images: tuple[str, ...] = ("runpod/*",)
    """Patterns of the images whose own entrypoint starts sshd where there is a PUBLIC_KEY."""
    by_id: dict[str, Pod] = field(default_factory=dict)
    made: int = 0

    def new_id(self) -> str:
        self.made += 1
        return hashlib.sha256(f"pod {self.made}".encode()).hexdigest()[:14]

    def named(self, name: str) -> list[Pod]:
        return [each for each in self.by_id.values() if each.name == name]

    def begin(self, pod: Pod) -> None:
        """Charged from here on: `cost` is not 0 while a pod provisions."""
        pod.life += 1
        pod.status = "PROVISIONING"
        count = pod.gpu[1]
        self.catalogue.take(str(pod.asked["gpu"]["id"]), pod.cloud, count)
        self.meter.stop(pod.id)
        self.meter.start(pod.id, pod.name, "gpu", round(pod.usd * USD))
        size = pod.asked.get("disk", 20) + _volume_gb(pod)
        self.meter.start(pod.id, pod.name, "disk", disk_price(size, DISK_USD))
        pod.fault = self.faults.take(IN_THE_MACHINE, "boot", pod.name)
        self._later(pod, self.durations.provisioning_s, self._starting)

    def stop(self, pod: Pod, status: str = "EXITED") -> None:
        """Release the GPUs and keep the volume."""
        self._off(pod, keeps_disk=True)
        pod.status = status
        self.meter.stop(pod.id)
        if _volume_gb(pod):
            price = disk_price(_volume_gb(pod), STOPPED_DISK_USD)
            self.meter.start(pod.id, pod.name, "disk", price)

    def restart(self, pod: Pod) -> None:
        """The container anew, on the same machine."""
        pod.life += 1
        self.boot.end(pod.id, keeps_disk=_volume_gb(pod) > 0)
        pod.has_ports = False
        self._starting(pod)

    def end(self, pod: Pod) -> None:
        """It is gone, and no list has it any more."""
        self._off(pod, keeps_disk=False)
        pod.status = "TERMINATED"
        self.meter.stop(pod.id)
        self.by_id.pop(pod.id, None)

    def lose(self, pod: Pod) -> None:
        """Its host is gone: nothing answers or is charged, and the pod says so later."""
        self._off(pod, keeps_disk=False)
        self.meter.stop(pod.id)
        self._later(pod, self.durations.notices_s, lambda lost: setattr(lost, "status", "ERROR"))

    def happens(self, event: str, name: str) -> None:
        """Raises: LookupError when there is no such event or no such pod."""
        act = {"host_lost": self.lose, "stop_by_hand": self.stop, "delete_by_hand": self.end,
               "exit": self.stop}.get(event)  # fmt: skip
        pods = self.named(name)
        if act is None or not pods:
            raise LookupError(f"event {event!r} of pod {name!r}: there is no such event or pod")
        for pod in pods:
            act(pod)

    def shown(self, pod: Pod) -> dict[str, Any]:
        """A pod as the API shows it."""
        asked, runs = pod.asked, pod.status == "RUNNING"
        is_charged = pod.status not in ("EXITED", "ERROR", "TERMINATED")
        return {
            "id": pod.id,
            "name": pod.name,
            "image": asked.get("image", ""),
            "args": asked.get("args", ""),
            "disk": asked.get("disk", 20),
            "ports": pod.ports,
            "env": pod.env,
            "registry": asked.get("registry"),
            "status": pod.status,
            "actions": ACTIONS[pod.status],
            "mounts": asked.get("mounts", {}),
            "gpu": {"id": pod.gpu[0], "count": pod.gpu[1]},
            "cloud": pod.cloud,
            "dataCenterId": None if pod.status == "PROVISIONING" else "EU-RO-1",
            "cudaVersion": None if pod.status == "PROVISIONING" else "12.8",
            "ssh": {"proxy": _proxy(pod), "direct": _direct(pod)},
            "template": None,
            "cost": pod.usd if is_charged else 0.0,
            "locked": False,
            "globalNetworking": {"enabled": False, "ip": None},
            "runtime": self._runtime(pod) if runs else None,
            "createdAt": rfc3339(pod.created_at),
            "startedAt": None if pod.started_at is None else rfc3339(pod.started_at),
        }

    def _runtime(self, pod: Pod) -> dict[str, Any]:
        ports = []
        if pod.has_ports and SSH in pod.ports and pod.address is not None:
            where = {"public": pod.address.port, "ip": pod.address.host}
            ports.append({"private": 22, "type": "tcp", **where})
        return {
            "uptime": int(self.clock.now() - (pod.started_at or 0)),
            "gpus": [{"utilization": 0, "memory": 0} for _ in range(pod.gpu[1])],
            "cpu": {"utilization": 1},
            "memory": {"utilization": 2},
            "ports": ports,
        }

    def _later(self, pod: Pod, seconds: float, act: Any) -> None:
        life = pod.life
        self.clock.after(seconds, lambda: act(pod) if pod.life == life else None)

    def _starting(self, pod: Pod) -> None:
        pod.status = "STARTING"
        self._later(pod, self.durations.starting_s, self._running)

    def _running(self, pod: Pod) -> None:
        if pod.has(FaultKind.NEVER_STARTS):
            self.stop(pod, "ERROR")
            return
        pod.status = "RUNNING"
        pod.started_at = self.clock.now()
        pod.address = self.boot.start(self._machine(pod))
        if pod.has(FaultKind.NO_SSH) or not self._starts_sshd(pod):
            self.boot.end(pod.id, keeps_disk=True)
        if pod.fault is None or pod.fault.kind is not FaultKind.NO_PORTS:
            late = pod.fault.seconds if pod.fault and pod.has(FaultKind.PORTS_LATE) else 0.0
            self._later(pod, late, lambda ready: setattr(ready, "has_ports", True))
        if pod.fault is not None and pod.has(FaultKind.VANISH):
            self._later(pod, pod.fault.seconds, self.lose)

    def _machine(self, pod: Pod) -> Machine:
        kind = self.catalogue.types.get(pod.gpu[0])
        return Machine(
            id=pod.id,
            name=pod.name,
            image=str(pod.asked.get("image", "")),
            env=pod.env,
            script=str(pod.asked.get("args", "")),
            let_in=pod.env.get("PUBLIC_KEY", "").splitlines(),
            gpus=(pod.gpu[0], pod.gpu[1], (kind.memory if kind else 24) * 1024),
            own_host_key=pod.has(FaultKind.OWN_HOST_KEY),
        )

    def _starts_sshd(self, pod: Pod) -> bool:
        args = str(pod.asked.get("args", ""))
        if args:
            run = [args, *(value for name, value in pod.env.items() if f"${name}" in args)]
            return any(word in text for word in ("sshd", "/start.sh") for text in run)
        image = str(pod.asked.get("image", ""))
        own = any(fnmatchcase(image, pattern) for pattern in self.sshd_images)
        return own and bool(pod.env.get("PUBLIC_KEY"))

    def _off(self, pod: Pod, *, keeps_disk: bool) -> None:
        if pod.status not in ("EXITED", "ERROR", "TERMINATED"):
            self.catalogue.take(str(pod.asked["gpu"]["id"]), pod.cloud, -pod.gpu[1])
        pod.life += 1
        pod.has_ports = False
        self.boot.end(pod.id, keeps_disk=keeps_disk and _volume_gb(pod) > 0)


def _volume_gb(pod: Pod) -> int:
    return int(pod.asked.get("mounts", {}).get("persistent", {}).get("size", 0))


def _proxy(pod: Pod) -> dict[str, Any] | None:
    if pod.status in ("PROVISIONING", "TERMINATED"):
        return None
    user = f"{pod.id}-64411f0a"
    host = "ssh.runpod.io"
    return {"host": host, "port": 22, "username": user, "command": f"ssh {user}@{host}"}


def _direct(pod: Pod) -> dict[str, Any] | None:
    if pod.status != "RUNNING" or not pod.has_ports or SSH not in pod.ports or pod.address is None:
        return None
    host, port = pod.address.host, pod.address.port
    return {"host": host, "port": port, "username": "root", "command": f"ssh root@{host} -p {port}"}
