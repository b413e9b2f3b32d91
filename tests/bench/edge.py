"""200 devices in one region: a deployment to all of them, quiet, and after restarts of our side.

Eight are whole machines, the others bare SSH servers: see `device_machines.py`.
"""

import os
import signal
import time
from dataclasses import dataclass
from typing import Any, Protocol

from tests.bench.device_machines import device_machines
from tests.bench.machine import (
    MIB,
    Share,
    all_cpu_s,
    cpu_s,
    peak_bytes,
    resident_bytes,
    share_of,
)
from tests.bench.measure import Row
from tests.bench.stack import Bench, scaled, stack
from tests.lab.host import obstacle
from tests.lab.waiting import wait_until

DEVICES = 200
WHOLE = 8
JOIN_LIMIT_S = 1200.0
DEPLOY_LIMIT_S = 600.0
SETTLED_S = 15.0
LOOKED_AT_S = 60.0
FLEET = 10_000
CPU_AIM_CORES = 0.1
CONNECTED_AIM_S = 10.0
OURS = ("api", "worker", "planning")
SERVES = "exec sleep infinity"


class Devices(Protocol):
    """The machines of the bench, the first of which is the storage node."""

    @property
    def machines(self) -> list[dict[str, Any]]:
        """What each announces."""

    def join(self, api: str, token: dict[str, Any]) -> None:
        """Let a region in, with a join token of it and the URL of the API."""

    def watched(self) -> int:
        """How many devices are watched now."""

    def forget_watches(self) -> None:
        """Count only watches that begin after this."""


@dataclass(frozen=True)
class Restarted:
    """How long a restart took until all devices were watched again, and what it cost."""

    seconds: float
    cost: str


def rows() -> list[Row]:
    """Real machines, which take CPU of the same host and are not counted among our processes."""
    if (reason := obstacle()) is not None:
        return [Row("devices in one region", reason)]
    count = scaled(DEVICES)
    whole = min(WHOLE, count)
    what = f"{count} devices in one region, {whole} whole machines and {count - whole} bare sshd"
    with device_machines(whole, count - whole) as machines:
        return measured(what, machines)


def measured(what: str, machines: Devices) -> list[Row]:
    """The rows of these machines."""
    count = len(machines.machines) - 1
    load = os.getloadavg()[0]
    with stack() as bench:
        configuration = _prepare(bench, machines)
        time.sleep(SETTLED_S)
        empty = share_of(bench.pids(), LOOKED_AT_S / 2)
        joined_s = _join(bench, machines, configuration)
        deploy_s = _deploy(bench, configuration, count)
        (worker_pid,) = bench.pids("worker")
        memory = f"{resident_bytes(worker_pid) / MIB:,.0f} MiB"
        again_s = _deploy(bench, configuration, count)
        peak = f"{peak_bytes(worker_pid) / MIB:,.0f} MiB"
        time.sleep(SETTLED_S)
        worker = share_of(bench.pids("worker"), LOOKED_AT_S / 2)
        all_of_it = share_of(bench.pids(), LOOKED_AT_S)
        restarted = _restart(bench, machines, count, signal.SIGTERM, OURS)
        killed = _restart(bench, machines, count, signal.SIGKILL, (*OURS, "temporal"))
    return [
        Row(
            f"{what}: deployed to all at once, until the deployment has finished",
            f"{deploy_s:.1f} s, worker process {memory}, at its peak {peak}",
            f"the next revision {again_s:.1f} s; their onboarding {joined_s:.0f} s; "
            f"load before {load:.1f}",
        ),
        _quiet_row(what, count, empty, worker, all_of_it),
        _connected_row(f"{what}: all watched after a restart of API and workers", restarted),
        _connected_row(f"{what}: all watched after kill -9 of them and of Temporal", killed),
    ]


def _quiet_row(what: str, count: int, empty: Share, worker: Share, ours: Share) -> Row:
    fleet = (ours.cores - empty.cores) * FLEET / count
    return Row(
        f"{what} and nothing changes: CPU of all processes; at that rate {FLEET:,} devices",
        f"{ours.cores:.2%} of a core, {ours.memory_bytes / MIB:,.0f} MiB; {fleet:.2f} cores",
        f"with the storage node alone {empty.cores:.2%}; the worker alone {worker.cores:.2%}",
        "10,000: < 0.1 cores",
        fleet < CPU_AIM_CORES,
    )


def _connected_row(name: str, took: Restarted) -> Row:
    return Row(name, f"{took.seconds:.1f} s", took.cost, "< 10 s", took.seconds < CONNECTED_AIM_S)


def _prepare(bench: Bench, machines: Devices) -> str:
    """A region with its storage node, which costs the same for any number of devices.

    Returns the id of a configuration.
    """
    platform = bench.platform
    body = {
        "provider_id": platform.items("/v1/providers")[0]["id"],
        "name": "shops",
        "storage_mode": "central",
        "exclusive_nodes": False,
        "relaxed_requirements": ["all"],
    }
    region_id = bench.region_id = platform.post("/v1/regions", body)["id"]
    platform.until_status(f"/v1/regions/{region_id}", "healthy")
    machines.join(bench.running.url, {**bench.join_token(), "region_id": region_id})
    store = machines.machines[0]
    node = _added(bench, "/v1/nodes", store, "store", services=["storage"])
    platform.until_status(f"/v1/nodes/{node}", "active")
    asked = {"region_id": region_id, "name": "detector", "command": SERVES, "health": {"up_s": 0}}
    configuration: str = platform.post("/v1/device-configurations", asked)["id"]
    return configuration


def _join(bench: Bench, machines: Devices, configuration: str) -> float:
    """Seconds until all devices are active, which are set to the configuration."""
    others = machines.machines[1:]
    started = time.monotonic()
    for number, machine in enumerate(others):
        device = _added(bench, "/v1/devices", machine, f"shop-{number}")
        change = {"configuration_id": configuration}
        bench.platform.ask("PATCH", f"/v1/devices/{device}", json=change)
    _until_devices(bench, "status = 'active'", len(others), JOIN_LIMIT_S)
    joined_s = time.monotonic() - started
    _until_watched(machines, len(others))
    return joined_s


def _added(bench: Bench, path: str, machine: dict[str, Any], name: str, **more: Any) -> str:
    token = bench.join_token()["secret"]
    told = {"token": token, "address": "127.0.0.1", "user": "root", **machine}
    bench.platform.post("/v1/announcements", told)
    body = {"region_id": bench.region_id, "name": name, "minion_id": machine["minion_id"], **more}
    resource_id: str = bench.platform.post(path, body)["id"]
    return resource_id


def _deploy(bench: Bench, configuration: str, count: int) -> float:
    """Seconds from the request until a next revision runs on all devices."""
    bench.platform.ask(
        "PATCH",
        f"/v1/device-configurations/{configuration}",
        json={"command": f"{SERVES} # {time.monotonic()}"},
    )
    started = time.monotonic()
    made = bench.platform.post("/v1/device-deployments", {"configuration_id": configuration})
    running = f"running_revision = {made['revision']}"
    _until_devices(bench, running, count, DEPLOY_LIMIT_S)
    bench.platform.until_status(f"/v1/device-deployments/{made['id']}", "finished")
    return time.monotonic() - started


def _until_devices(bench: Bench, condition: str, count: int, limit_s: float) -> None:
    query = f"SELECT count(*) FROM devices WHERE {condition}"
    wait_until(lambda: bench.asked(query)[0][0] >= count, f"{count} devices: {condition}", limit_s)


def _until_watched(machines: Devices, count: int) -> None:
    wait_until(lambda: machines.watched() >= count, f"{count} devices are watched", 300)


def _restart(
    bench: Bench, machines: Devices, count: int, number: signal.Signals, names: tuple[str, ...]
) -> Restarted:
    """End our processes, and wait until all devices are watched again."""
    _until_watched(machines, count)
    before = bench.pids(*names)
    (temporal,) = bench.pids("temporal")
    machines.forget_watches()
    temporal_s, all_s, started = cpu_s(temporal), all_cpu_s(), time.monotonic()
    for pid in before:
        os.kill(pid, number)
    wait_until(lambda: machines.watched() == 0, "nothing is watched", 60)
    _until_watched(machines, count)
    seconds = time.monotonic() - started
    (worker,), (now,) = bench.pids("worker"), bench.pids("temporal")
    temporal_s = cpu_s(now) - (temporal_s if now == temporal else 0.0)
    return Restarted(
        seconds,
        f"CPU seconds: worker {cpu_s(worker):.1f}, Temporal {temporal_s:.1f}, "
        f"this whole machine {all_cpu_s() - all_s:.1f}; load {os.getloadavg()[0]:.1f}",
    )
