"""The stage: the platform in a home of its own, with two simulated marketplaces beside it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.demo_burst.marketplaces import Marketplace
from tests.lab.machines import Lab
from workers.runner.lifecycle import attached, bring_down, bring_up
from workers.runner.narration import Story
from workers.runner.probes import free_port
from workers.runner.programs import LOOPBACK, default_stack
from workers.runner.settings import RunnerSettings
from workers.runner.stack import Probe, Program, Stack

HOME_NAME = "demo-burst"
KINDS = "runpod", "vastai"
SSH_PROGRAM = "sshd"
STATE_INTERVAL_S = 10
"""As often as it may be; a job's state is copied off its machine every five minutes otherwise."""


@dataclass(frozen=True)
class Stage:
    """What the story is played on. markets: the simulated marketplaces by their kinds."""

    settings: RunnerSettings
    lab: Lab
    markets: Mapping[str, Marketplace]


@contextmanager
def running_stack(home: Path, lab: Lab, story: Story) -> Iterator[Stage]:
    """From nothing, whatever an earlier one has left, and to nothing again.

    Raises: StackError, when it cannot be brought up or down.
    """
    bring_down(home, story.tell)
    shutil.rmtree(home, ignore_errors=True)
    settings = RunnerSettings(
        home=home,
        api=f"{lab.network.host_address}:{free_port(lab.network.host_address)}",
        temporal_port=free_port(),
        ui_port=free_port(),
        node_networks="127.0.0.0/8",
        cpu_core_hour_microcredits=0,
    )
    ports = {kind: free_port() for kind in KINDS}
    markets = {kind: Marketplace(kind, f"http://{LOOPBACK}:{port}") for kind, port in ports.items()}
    with ExitStack() as held:
        held.callback(bring_down, home, story.tell)
        for market in markets.values():
            held.callback(market.close)
        with story.step("Start the simulated marketplaces, Temporal, API and workers"):
            bring_up(home, lambda: plan(settings, ports), story.tell)
            for market in markets.values():
                market.set_up()
                log = home / "logs" / f"{program_of(market.kind)}.log"
                story.tell(f"simulated marketplace {market.kind}: {market.url}, log {log}")
            story.tell(f"API: {settings.api_url}/docs, Temporal UI: {settings.ui_url}")
        with attached(home, story.tell):
            yield Stage(settings, lab, markets)


def plan(settings: RunnerSettings, ports: Mapping[str, int]) -> Stack:
    """What `make up` runs, less this machine's SSH server, and the marketplaces before all of it.

    ports: of the marketplaces by their kinds.
    """
    usual = default_stack(settings)
    own = ",".join((LOOPBACK, "localhost", settings.api_host, os.environ.get("NO_PROXY", "")))
    environment = {
        **{
            f"BASELOAD_{kind.upper()}_ENDPOINT": f"http://{LOOPBACK}:{port}"
            for kind, port in ports.items()
        },
        "BASELOAD_STATE_INTERVAL_S": str(STATE_INTERVAL_S),
        # The rented machines have this host's network, whose rules are not a job's to set.
        "BASELOAD_JOB_NETWORK_WALL": "false",
        "NO_PROXY": own,
        "no_proxy": own,
    }
    programs = [
        program.model_copy(update={"environment": {**program.environment, **environment}})
        for program in usual.programs
        if program.name != SSH_PROGRAM
    ]
    doubles = [_marketplace(kind, port) for kind, port in ports.items()]
    return usual.model_copy(update={"programs": (*doubles, *programs)})


def program_of(kind: str) -> str:
    return f"{kind}-double"


def _marketplace(kind: str, port: int) -> Program:
    command = (
        sys.executable, "-m", f"tests.doubles.{kind}",
        "--port", str(port),
        "--rate", "1",
        "--boot", "contained",
    )  # fmt: skip
    probe = Probe(kind="http", host=LOOPBACK, port=port, path="/double/faults")
    # What it writes is the disks of machines, on which every account is to find its way.
    return Program(name=program_of(kind), command=command, ready=probe, umask=0o022)
