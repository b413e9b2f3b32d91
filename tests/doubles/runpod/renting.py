"""RunPod's calls about pods and keys: how a body becomes a pod, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.doubles.http_double import Answer
from tests.doubles.rented.door import Call, as_json
from tests.doubles.rented.faults import IN_THE_RENTAL, FaultKind
from tests.doubles.rented.meter import USD
from tests.doubles.runpod.errors import NO_CAPACITY, refused
from tests.doubles.runpod.pods import ACTIONS, Pod, Pods

OTHER = ("NVIDIA RTX A4000", 1)
"""What comes instead of what was asked for."""


@dataclass
class Renting:
    """balance: USD that the account has left, before what the meter has counted; keys: the public
    keys of the account; list_lag_s: how long a new pod is in no list;
    gone_lag_s: how long a deleted one, which costs nothing any more, is still in every list."""

    pods: Pods
    balance: float = 1000.0
    keys: list[str] = field(default_factory=list)
    list_lag_s: float = 0.0
    gone_lag_s: float = 0.0
    ended: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """When each pod was deleted, and as what the lists show it."""

    def create(self, call: Call) -> Answer:
        asked: dict[str, Any] = call.body()
        self._rules(asked)
        gpu, count = asked["gpu"]["id"], asked["gpu"].get("count", 1)
        cloud = asked.get("cloud", "SECURE")
        catalogue = self.pods.catalogue
        if gpu in catalogue.forbidden:
            raise refused(403, "access denied")
        usd = round(catalogue.types[gpu].price(cloud) * count, 4)
        if self.left() < usd:
            raise refused(402, "Your account balance is too low to create this pod.")
        fault = self.pods.faults.take(IN_THE_RENTAL, call.name, asked["name"])
        gone = fault is not None and fault.kind is FaultKind.NO_CAPACITY
        if gone or catalogue.free_of(gpu, cloud) < count:
            raise refused(400, NO_CAPACITY)
        got = gpu, count
        if fault is not None and fault.kind is FaultKind.OTHER_MACHINE:
            got = OTHER
        if fault is not None and fault.kind is FaultKind.DEARER:
            usd = round(usd * fault.factor, 4)
        env = dict(asked.get("env", {}))
        if asked.get("startSsh") and self.keys:
            env.setdefault("PUBLIC_KEY", "\n".join(self.keys))
        now = self.pods.clock.now()
        pod = Pod(self.pods.new_id(), asked, got, usd, env, created_at=now)
        self.pods.by_id[pod.id] = pod
        self.pods.begin(pod)
        return as_json(201, self.pods.shown(pod))

    def listed(self, call: Call) -> Answer:
        seen = self.pods.clock.now() - self.list_lag_s
        pods = [each for each in self.pods.by_id.values() if each.created_at <= seen]
        since = self.pods.clock.now() - self.gone_lag_s
        ended = [shown for at, shown in self.ended if at > since]
        return as_json(200, {"pods": [*(self.pods.shown(each) for each in pods), *ended]})

    def found(self, call: Call) -> Answer:
        return as_json(200, self.pods.shown(self._pod(call)))

    def deleted(self, call: Call) -> Answer:
        pod = self._pod(call)
        self.ended.append((self.pods.clock.now(), self.pods.shown(pod)))
        self.pods.end(pod)
        return Answer(204)

    def acted(self, call: Call) -> Answer:
        pod, action = self._pod(call), call.body()["action"]
        if action not in ACTIONS[pod.status]:
            raise refused(409, f"action {action} is not valid for a pod that is {pod.status}")
        if action == "terminate":
            return self.deleted(call)
        if action == "start":
            gpu, count = pod.asked["gpu"]["id"], pod.gpu[1]
            if self.pods.catalogue.free_of(gpu, pod.cloud) < count:
                raise refused(400, NO_CAPACITY)
            self.pods.begin(pod)
        elif action == "stop":
            self.pods.stop(pod)
        else:
            self.pods.restart(pod)
        return as_json(200, self.pods.shown(pod))

    def keys_listed(self, call: Call) -> Answer:
        return as_json(200, {"keys": self.keys})

    def keys_replaced(self, call: Call) -> Answer:
        self.keys = list(call.body()["keys"])
        return self.keys_listed(call)

    def left(self) -> float:
        """USD of the balance that nothing has used up."""
        return self.balance - self.pods.meter.microcredits() / USD

    def _pod(self, call: Call) -> Pod:
        pod = self.pods.by_id.get(call.found["id"])
        if pod is None:
            raise refused(404, "pod not found")
        return pod

    def _rules(self, asked: dict[str, Any]) -> None:
        """What the contract lets through and RunPod refuses all the same. Raises: RefusedError."""
        if ("gpu" in asked) == ("cpu" in asked):
            raise refused(400, "exactly one of gpu or cpu must be set")
        for unserved in ("cpu", "templateId"):
            if unserved in asked:
                raise refused(400, f"{unserved}: this double has none")
        if len(asked.get("mounts", {})) > 1:
            raise refused(400, "mounts.persistent and mounts.network are mutually exclusive")
        gpu, cloud = asked["gpu"], asked.get("cloud", "SECURE")
        if gpu.get("allowedCudaVersions") and "minCudaVersion" in gpu:
            raise refused(400, "allowedCudaVersions and minCudaVersion are mutually exclusive")
        for port in asked.get("ports", []):
            number, _, kind = port.partition("/")
            if not number.isdigit() or kind not in ("tcp", "http"):
                raise refused(400, f"port {port} is not formatted as port/protocol")
        self._fits(gpu, cloud)

    def _fits(self, gpu: dict[str, Any], cloud: str) -> None:
        known = self.pods.catalogue.types.get(gpu["id"])
        if known is None:
            raise refused(400, f"gpu type {gpu['id']} does not exist")
        if gpu.get("count", 1) > max(known.max_secure, known.max_community):
            raise refused(400, f"gpu.count is more than the largest machine of {gpu['id']} has")
        if gpu.get("count", 1) > known.max_count(cloud):
            raise refused(400, NO_CAPACITY)
