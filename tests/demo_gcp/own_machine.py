"""A machine of one's own with one A100: a lab machine that becomes an active node."""

from __future__ import annotations

import shlex

from tests.demo_gcp.telling import Terminal
from tests.lab.hardware import put_gpus
from tests.lab.machine import Machine
from tests.lab.machines import Lab

OWN_REGION, OWN_NODE = "home", "own-a100"
A100, A100_MIB = "NVIDIA A100-SXM4-40GB", 40_960


def own_machine(telling: Terminal, lab: Lab, api_url: str) -> None:
    """It is an active node in a region of its own."""
    telling.baseload("credit", "add", "25")
    telling.baseload("provider", "enable", "physical", "--wait")
    relaxed = "--provider", "physical", "--relax", "all"
    telling.baseload("region", "create", OWN_REGION, *relaxed)
    telling.reached("regions", OWN_REGION, "healthy")
    machine = lab.add(OWN_NODE)
    put_gpus(machine, A100, 1, A100_MIB)
    _announce(telling, machine, api_url)
    minion = "--region", OWN_REGION, "--minion-id", machine.minion_id
    telling.baseload("node", "add", OWN_NODE, *minion)
    telling.reached("nodes", OWN_NODE, "maintenance")
    telling.baseload("node", "activate", OWN_NODE)
    telling.reached("nodes", OWN_NODE, "active")


def _announce(telling: Terminal, machine: Machine, url: str) -> None:
    """What a person does on the machine: run join.sh, as the API serves it."""
    region = telling.api.live("regions", name=OWN_REGION) or {}
    made = telling.api.post("/v1/join-tokens", {"region_id": region["id"]})
    options = "--api", url, "--token", made["secret"], "--key", made["ssh_public_key"]
    fetched = f"curl -fsS {url}/join.sh"
    telling.tell(f"{OWN_NODE}$ {fetched} | sh -s -- --api {url} --token … --key …")
    line = f"{fetched} | sh -s -- {shlex.join(map(str, options))}"
    telling.tell(machine.run("sh", "-c", line).strip())
