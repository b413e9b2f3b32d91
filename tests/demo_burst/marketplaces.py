"""A simulated marketplace, asked beside the platform: what it rents out and what it has charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from activities.providers.image_machines import own_machine_name
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY

HOUR_S = 3600
GPU, DISK = "gpu", "disk"
DURATIONS: Mapping[str, Mapping[str, float]] = {
    "runpod": {"provisioning_s": 1, "starting_s": 3, "notices_s": 5},
    "vastai": {"created_s": 1, "loading_s": 1, "running_s": 3, "notices_s": 5},
}
"""Of the states of a new machine, for which the real ones take minutes."""
ASKS = (7100001, 0.71, 101), (7100002, 0.74, 102), (7100003, 0.79, 103)
"""Of an A100 of 40 GB each: the number, USD an hour, the place of its host."""
RUNPOD_GPU = "NVIDIA A100 80GB PCIe"


@dataclass(frozen=True)
class Charge:
    """What the meter of a marketplace says of one machine.

    seconds: from its creation to its end; gpu_s: of these, while its GPUs were charged.
    """

    kind: str
    name: str
    seconds: float
    gpu_s: float
    gpu_microcredits_per_hour: int
    disk_microcredits_per_hour: int
    microcredits: int
    is_running: bool

    @property
    def machine_name(self) -> str:
        """Its name without that of its provider, which the marketplace's one has behind it."""
        return self.name.rpartition(".")[0]

    @property
    def microcredits_per_hour(self) -> int:
        return self.gpu_microcredits_per_hour + self.disk_microcredits_per_hour


class Marketplace:
    """Through the double's own paths, which the real one does not have."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self._client = httpx.Client(base_url=f"{url}/double/", timeout=30, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def set_up(self) -> None:
        """Machines are there in seconds; Vast.ai's market has three A100 of 40 GB."""
        settings: dict[str, Any] = {"durations": DURATIONS[self.kind]}
        if self.kind == "vastai":
            settings["offers"] = [
                {"id": ask, "gpu_name": "A100 SXM4", "num_gpus": 1, "gpu_ram": 40_960,
                 "dph_base": usd, "geolocation": f"Host {host}, BG"}
                for ask, usd, host in ASKS
            ]  # fmt: skip
        self._client.post("settings", json=settings).raise_for_status()

    def write_key(self, to: Path) -> None:
        """The API key of the account, for the eyes of its owner only."""
        to.touch(mode=0o600)
        to.write_text(RUNPOD_KEY if self.kind == "runpod" else VASTAI_KEY)

    def machines(self) -> list[str]:
        """The marketplace's names of the machines that are rented."""
        noun, name = ("pods", "name") if self.kind == "runpod" else ("instances", "label")
        return sorted(str(each[name]) for each in self._get("state")["machines"][noun])

    def lose_host(self, name: str) -> None:
        """The host of that machine vanishes, as those of strangers do, and its machine with it."""
        event = {"event": "delete_by_hand", "name": name}
        self._client.post("events", json=event).raise_for_status()

    def calls(self) -> list[str]:
        return list(self._get("calls")["calls"])

    def violations(self) -> list[str]:
        """Requests that the marketplace's documents do not know."""
        return list(self._get("violations")["violations"])

    def charges(self) -> list[Charge]:
        """Of every machine that there was, in the order of their beginnings."""
        stretches: dict[str, list[dict[str, Any]]] = {}
        for row in self._get("meter")["charges"]:
            stretches.setdefault(row["machine_id"], []).append(row)
        return [self._charge(rows) for rows in stretches.values()]

    def _charge(self, rows: list[dict[str, Any]]) -> Charge:
        of: dict[str, list[dict[str, Any]]] = {GPU: [], DISK: []}
        for row in rows:
            of[row["what"]].append(row)
        return Charge(
            kind=self.kind,
            name=str(rows[0]["name"]),
            seconds=sum(row["seconds"] for row in of[DISK]),
            gpu_s=sum(row["seconds"] for row in of[GPU]),
            gpu_microcredits_per_hour=max((row["price"] for row in of[GPU]), default=0),
            disk_microcredits_per_hour=max((row["price"] for row in of[DISK]), default=0),
            microcredits=sum(row["microcredits"] for row in rows),
            is_running=any(row["ended_at"] is None for row in rows),
        )

    def _get(self, noun: str) -> dict[str, Any]:
        return dict(self._client.get(noun).raise_for_status().json())


def make_orphan(runpod: Marketplace, machine_name: str, provider_id: str) -> str:
    """Rent a pod behind the platform's back, as one that has lost its database had rented it.

    Returns the marketplace's name of the pod.
    """
    name = f"{machine_name}.{provider_id}"
    assert own_machine_name(name, provider_id) == machine_name
    body = {
        "name": name,
        "image": "runpod/base:1.0.2-ubuntu2404",
        "cloud": "COMMUNITY",
        "gpu": {"id": RUNPOD_GPU, "count": 1},
        "disk": 10,
    }
    heads = {"Authorization": f"Bearer {RUNPOD_KEY}"}
    with httpx.Client(base_url=runpod.url, headers=heads, trust_env=False) as account:
        account.post("/v2/pods", json=body).raise_for_status()
    return name
