"""The simulated cloud, asked beside the platform: what exists there, and what it has charged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.gcp.access import PROVIDER_ROLES
from workers.runner.lifecycle import StackError

ROLES = (*PROVIDER_ROLES, "roles/cloudquotas.viewer")
"""What deploy/providers/gcp.md asks for."""

STOP_S = 10.0


@dataclass(frozen=True)
class Charge:
    """What the cloud's meter says of one machine."""

    name: str
    zone: str
    machine_type: str
    spot: bool
    seconds: float
    is_running: bool


class SimulatedCloud:
    """Through the double's own paths, which Google does not have."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=f"{url}/double/", timeout=30, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def download_key(self, to: Path) -> None:
        """A new key of a service account with all roles, for the eyes of its owner only."""
        answer = self._client.post("keys", json={"roles": ROLES}).raise_for_status()
        to.touch(mode=0o600)
        to.write_text(json.dumps(answer.json()))

    def be_quick_to_stop(self) -> None:
        """A preempted VM is gone within a second. Google gives it up to 30 s, for which its meter
        runs, and which no lease sees: they end with the news."""
        self._client.post("settings", json={"durations": {"stop_s": STOP_S}}).raise_for_status()

    def machines(self) -> list[str]:
        """Names of the VMs there are."""
        return [str(vm["name"]) for vm in self._get("state")["instances"]]

    def spot_machine(self) -> str | None:
        """The name of a VM that may be taken back, if there is one."""
        return next((each.name for each in self.charges() if each.spot and each.is_running), None)

    def left(self) -> list[str]:
        """Everything that exists there, by its path."""
        state = self._get("state")
        return [
            *sorted(state["resources"]),
            *(str(vm["name"]) for vm in state["instances"]),
            *state["topics"],
            *state["subscriptions"],
            *state["sinks"],
        ]

    def charges(self) -> list[Charge]:
        """Of every machine that there was, in the order of their beginnings."""
        return [
            Charge(
                name=row["name"],
                zone=row["zone"],
                machine_type=row["machine_type"],
                spot=row["spot"],
                seconds=row["seconds"],
                is_running=row["ended_at"] is None,
            )
            for row in self._get("meter")["charges"]
        ]

    def preempt(self, name: str) -> None:
        """Take a spot VM back, as Google does at any moment. Raises: StackError."""
        answer = self._client.post("events", json={"event": "preempt", "name": name})
        if answer.is_error or not answer.json()["done"]:
            raise StackError(f"{name} cannot be preempted: {answer.text}")

    def violations(self) -> list[str]:
        """Requests that Google's documents do not know."""
        return list(self._get("violations")["violations"])

    def _get(self, noun: str) -> dict[str, Any]:
        return dict(self._client.get(noun).raise_for_status().json())
