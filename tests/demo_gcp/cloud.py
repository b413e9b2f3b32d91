"""The simulated cloud, asked beside the platform: what exists there, and what it has charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from workers.runner.lifecycle import StackError


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

    def machines(self) -> list[str]:
        """Names of the VMs there are."""
        return [str(vm["name"]) for vm in self._get("state")["instances"]]

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
