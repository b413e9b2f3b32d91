"""The stage: the platform in a home of its own, with the simulated cloud as one more program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.demo_gcp.cloud import SimulatedCloud
from tests.lab.machines import Lab
from workers.runner.lifecycle import attached, bring_down, bring_up
from workers.runner.narration import Story
from workers.runner.probes import free_port
from workers.runner.programs import LOOPBACK, default_stack
from workers.runner.settings import RunnerSettings
from workers.runner.stack import Probe, Program, Stack

HOME_NAME = "demo-gcp"
CLOUD = "google-double"
TIMES_FASTER = 10
STATE_INTERVAL_S = 10
"""As often as it may be; a job's state is copied off its machine every five minutes otherwise."""
SSH_PROGRAM = "sshd"


@dataclass(frozen=True)
class Stage:
    """What the story is played on."""

    settings: RunnerSettings
    lab: Lab
    cloud: SimulatedCloud
    key: Path
    """Of a service account of the simulated cloud, as it is downloaded from Google."""


@contextmanager
def running_stack(home: Path, lab: Lab, story: Story) -> Iterator[Stage]:
    """From nothing, whatever an earlier one has left, and to nothing again.

    Raises: StackError, when it cannot be brought up or down.
    """
    bring_down(home, story.tell)
    shutil.rmtree(home)
    settings = RunnerSettings(
        home=home,
        api=f"{lab.network.host_address}:{free_port(lab.network.host_address)}",
        temporal_port=free_port(),
        ui_port=free_port(),
    )
    ports = free_port(), free_port()
    cloud = SimulatedCloud(f"http://{LOOPBACK}:{ports[0]}")
    key = home / "service-account-key.json"
    try:
        with story.step("Start the simulated cloud, Temporal, API and workers"):
            bring_up(home, lambda: plan(settings, ports), story.tell)
            cloud.download_key(key)
            cloud.be_quick_to_stop()
            story.tell(f"simulated cloud: {cloud.url}, log {home / 'logs' / CLOUD}.log")
            story.tell(f"API: {settings.api_url}/docs, Temporal UI: {settings.ui_url}")
        with attached(home, story.tell):
            yield Stage(settings, lab, cloud, key)
    finally:
        cloud.close()
        bring_down(home, story.tell)


def plan(settings: RunnerSettings, ports: tuple[int, int]) -> Stack:
    """What `make up` runs, less this machine's SSH server, and the cloud before all of it."""
    usual = default_stack(settings)
    http, pubsub = ports
    own = ",".join((LOOPBACK, "localhost", settings.api_host, os.environ.get("NO_PROXY", "")))
    environment = {
        "BASELOAD_GCP_ENDPOINT": f"http://{LOOPBACK}:{http}",
        "PUBSUB_EMULATOR_HOST": f"{LOOPBACK}:{pubsub}",
        "BASELOAD_STATE_INTERVAL_S": str(STATE_INTERVAL_S),
        "NO_PROXY": own,
        "no_proxy": own,
    }
    programs = [
        program.model_copy(update={"environment": {**program.environment, **environment}})
        for program in usual.programs
        if program.name != SSH_PROGRAM
    ]
    return usual.model_copy(update={"programs": (_cloud(http, pubsub), *programs)})


def _cloud(http: int, pubsub: int) -> Program:
    command = (
        sys.executable, "-m", "tests.doubles.gcp",
        "--port", str(http),
        "--pubsub-port", str(pubsub),
        "--time-scale", str(TIMES_FASTER),
        "--boot", "contained",
    )  # fmt: skip
    probe = Probe(kind="http", host=LOOPBACK, port=http, path="/double/faults")
    return Program(name=CLOUD, command=command, ready=probe)
