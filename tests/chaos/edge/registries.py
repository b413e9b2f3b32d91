"""The image registry is away, breaks off, or the device loses its power while it pulls."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.activities.agent.podman import IMAGE
from tests.activities.agent.registry import Registry, serving_image
from tests.chaos.edge.faults import add, fault
from tests.chaos.edge.stage import DEVICES, LIMIT_S, Edge
from tests.lab.machine import Machine
from tests.lab.test_hardware_on_machines import put_image
from tests.lab.waiting import wait_until

NAME = "edge/detector"
ASKED_AGAIN = 4
"""So many requests of a registry that fails are of more than one try."""


@contextlib.contextmanager
def registry(stage: Edge) -> Iterator[Registry]:
    """A registry in the network of the devices, with an image that no device has."""
    layout = stage.lab.folder / "image"
    if not layout.exists():
        _save_image(stage.machine(sorted(DEVICES)[0]), layout)
    host = stage.lab.network.host_address
    with serving_image(layout, is_private=False, host=host) as found:
        for device in DEVICES:
            folder = stage.machine(device).disk / "etc/containers"
            folder.mkdir(exist_ok=True)
            (folder / "registries.conf").write_text(found.settings)
            _settings_of_podman(stage.machine(sorted(DEVICES)[0]), stage.machine(device))
        yield found


def _save_image(machine: Machine, layout: Path) -> None:
    """Make an image on a device, take it as files, and remove it there."""
    put_image(machine)
    machine.run("podman", "save", "-q", "--format", "oci-dir", "-o", "/tmp/image", IMAGE)
    machine.run("podman", "rmi", IMAGE)
    command = ["cp", "-r", f"{machine.disk}/tmp/image", str(layout)]
    subprocess.run(command, check=True)


def _settings_of_podman(first: Machine, machine: Machine) -> None:
    path = "etc/containers/containers.conf"
    if first is not machine:
        shutil.copyfile(first.disk / path, machine.disk / path)


def image_of(found: Registry, number: int) -> str:
    """A name of the image that no device has pulled yet."""
    return f"{found.address}/{NAME}:{number}"


def fails_for_a_while(how: str, stage: Edge, name: str, dice: random.Random) -> None:
    """What ran runs on while the registry fails; the deployment waits, and has its image then."""
    device = dice.choice(sorted(DEVICES))
    with registry(stage) as found:
        stage.machine(device).run("podman", "rmi", "--all", "--force")
        image = {"image": image_of(found, dice.randrange(10**6))}
        setattr(found, how, True)
        stage.injected(name)
        before = stage.wanted[device].revision
        deployment = stage.begin(device, environment=image)
        wait_until(
            lambda: len(found.asked) + found.unanswered >= ASKED_AGAIN,
            "it is asked for again",
            LIMIT_S,
        )
        running = stage.row(device)["running"] or {}
        if running.get("revision") != before:
            raise AssertionError(f"{device}: runs {running}, asked revision {before}")
        setattr(found, how, False)
        stage.ended(deployment)
        stage.reach(device)
        stage.look_around(name)
        stage.ended(stage.begin(device))


for each, how in (("away", "is_away"), ("broken-off", "breaks_off")):
    add(f"registry-{each}", partial(fails_for_a_while, how))


@fault
def power_cut_while_an_image_is_pulled(stage: Edge, name: str, dice: random.Random) -> None:
    """The pull is broken off with the device, and the image is whole when it is back."""
    device = dice.choice(sorted(DEVICES))
    with registry(stage) as found:
        stage.machine(device).run("podman", "rmi", "--all", "--force")
        image = {"image": image_of(found, dice.randrange(10**6))}
        deployment = stage.begin(device, environment=image)
        wait_until(lambda: any("/blobs/" in one for one in found.asked), "it is pulled", LIMIT_S)
        stage.machine(device).power_cut()
        stage.injected(name)
        stage.machine(device).boot()
        stage.ended(deployment)
        stage.look_around(name)
        stage.ended(stage.begin(device))
