"""What it shows: two devices, a bad revision, a power cut, the platform down, and a late third."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

from tests.demo_data.stack import Stage, plan
from tests.demo_gcp.telling import Terminal
from tests.lab.jetsons import Jetson
from tests.lab.machine import Machine
from workers.runner.commands import Resource
from workers.runner.lifecycle import bring_down, bring_up
from workers.runner.narration import Story

REGION, STORAGE = "shops", "storage-1"
SHOPS = {"shop-1": "Orin NX", "shop-2": "AGX Orin", "shop-3": "Orin Nano"}
LATE = "shop-3"
MARK = "detector-of-the-demonstration"
"""What is on the command line of the inference, by which it is found among the processes."""
PROGRAM = f"""\
# {MARK}: says once a second what it would have seen, and notes it where its output goes.
echo "the model is loaded"
while :; do
    date -u +%FT%TZ >> "$BASELOAD_OUTPUT/$(hostname).txt"
    sleep 1
done
"""
MODEL_PATH = "/detector.sh"


class Telling(Terminal):
    """The terminal, the stage beside it, and the devices by their names."""

    def __init__(self, stage: Stage, story: Story) -> None:
        super().__init__(stage.settings, story)
        self.stage = stage
        self.story = story
        self.devices: dict[str, Machine] = {}

    def device(self, name: str) -> Resource:
        """What the platform says of a device."""
        found = self.api.live("devices", name=name) or {}
        return self.api.get(f"/v1/devices/{found['id']}")

    def runs(self, name: str) -> bool:
        """Whether the device's inference is among its processes."""
        return any(MODEL_PATH[1:] in line for line in self.devices[name].command_lines())

    def runs_nothing(self, name: str) -> bool:
        return not self.runs(name)

    def _revision_of(self, name: str) -> int | None:
        """The revision that the platform says the device runs."""
        running = self.device(name)["running"]
        return running and int(running["revision"])

    def must_run(self, name: str, revision: int) -> None:
        self.until(
            f"{name} runs revision {revision}",
            lambda: self.runs(name) and self._revision_of(name) == revision,
        )


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    for name, step in STEPS:
        with story.step(name):
            step(telling)


def central_region(telling: Telling) -> None:
    """The storage node comes first; the model and the share are there."""
    telling.baseload("credit", "add", "25")
    telling.baseload("provider", "enable", "physical", "--wait")
    telling.baseload("region", "create", REGION, "--storage", "central", "--relax", "all", "--wait")
    machine = telling.stage.lab.add(STORAGE)
    _join(telling, machine)
    minion = "--region", REGION, "--minion-id", machine.minion_id
    telling.baseload("node", "add", STORAGE, *minion, "--service", "storage")
    telling.reached("nodes", STORAGE, "active")
    telling.stage.web.files[MODEL_PATH] = PROGRAM.encode()
    source = telling.stage.web.url(MODEL_PATH)
    telling.baseload("model", "create", "detector-v1", "--source", source)
    telling.reached("models", "detector-v1", "ready")
    nfs = "--nfs", telling.stage.nfs.address, "--root", str(telling.stage.nfs.shared)
    telling.baseload("datastore", "add", "seen", "--region", REGION, *nfs, "--wait")


def two_devices(telling: Telling) -> None:
    """They join as any machine does, and are active by themselves."""
    for name in SHOPS:
        if name != LATE:
            _boot(telling, name)
            _join(telling, telling.devices[name])
        else:
            _boot(telling, name)
        _add(telling, name)
    for name in SHOPS:
        if name != LATE:
            telling.reached("devices", name, "active")
    telling.baseload("device", "ls")


def first_deployment(telling: Telling) -> None:
    """A configuration, and its first revision on the devices that are there."""
    telling.baseload(
        "device-config", "create", "detector", "--region", REGION, "--model", "detector-v1",
        "--command", f"sh .{MODEL_PATH}", "--datastore", "seen", "--path", "shops",
        "--up-s", "2", "--log-line", "the model is loaded",
    )  # fmt: skip
    for name in SHOPS:
        telling.baseload("device", "set", name, "--config", "detector")
    present = [name for name in SHOPS if name != LATE]
    telling.baseload("deploy", *present)
    for name in present:
        telling.must_run(name, 1)


def log_of_a_device(telling: Telling) -> None:
    """What a device says is read from the device itself."""
    telling.baseload("device", "logs", "shop-1", "--lines", "5")
    path = f"/v1/devices/{telling.device('shop-1')['id']}/logs?lines=5"
    said = telling.api.text(path)
    telling.expect("the log says that the model is loaded", said == "the model is loaded\n")


def output_on_the_share(telling: Telling) -> None:
    """What a device writes comes to the share of its region."""
    folder = telling.stage.nfs.shared / "shops"
    for name in (each for each in SHOPS if each != LATE):
        file = folder / f"{name}.txt"
        telling.until(f"{file} is on the share's server", file.exists)


def bad_revision(telling: Telling) -> None:
    """It exits at once: the first device that meets it goes back, and the other is not asked."""
    telling.baseload("device-config", "update", "detector", "--command", "echo broken; exit 3")
    telling.baseload("device-config", "diff", "detector")
    present = [name for name in SHOPS if name != LATE]
    policy = "--max-unavailable", "1", "--max-failures", "1", "--rollback", "--no-wait"
    telling.baseload("deploy", *present, *policy)
    newest = telling.api.get("/v1/device-deployments?limit=1")["items"][0]
    telling.path_reached(f"/v1/device-deployments/{newest['id']}", "rolled_back")
    for name in present:
        telling.must_run(name, 1)


def power_cut(telling: Telling) -> None:
    """The device is back with its power, and so is what it runs."""
    machine = telling.devices["shop-1"]
    machine.power_cut()
    telling.reached("devices", "shop-1", "offline")
    machine.boot()
    telling.until("shop-1 runs it again", lambda: telling.runs("shop-1"))
    telling.reached("devices", "shop-1", "active")
    telling.must_run("shop-1", 1)


def platform_down(telling: Telling) -> None:
    """The platform is down, a device restarts, and runs on without it."""
    home = telling.stage.settings.home
    bring_down(home, telling.tell)
    machine = telling.devices["shop-2"]
    machine.power_cut()
    machine.boot()
    telling.until("shop-2 runs it again, and nobody has asked it", lambda: telling.runs("shop-2"))
    bring_up(home, lambda: plan(telling.stage.settings), telling.tell)
    telling.reached("devices", "shop-2", "active")
    telling.must_run("shop-2", 1)


def late_device(telling: Telling) -> None:
    """It was deployed to before it came: the deployment left the assignment with it."""
    telling.baseload("deploy", LATE, "--revision", "1", "--limit", "1m")
    _join(telling, telling.devices[LATE])
    telling.reached("devices", LATE, "active")
    telling.must_run(LATE, 1)


def remove_everything(telling: Telling) -> None:
    """A removed device runs nothing more; what is on the share stays."""
    for name in SHOPS:
        path = f"/v1/devices/{telling.device(name)['id']}"
        telling.baseload("device", "rm", name)
        telling.until(f"{name} runs nothing", partial(telling.runs_nothing, name))
        telling.path_reached(path, "archived")
    telling.baseload("device-config", "rm", "detector")
    stored = sorted(path.name for path in (telling.stage.nfs.shared / "shops").iterdir())
    telling.expect("the output is on the share still", stored[:2] == ["shop-1.txt", "shop-2.txt"])


STEPS: tuple[tuple[str, Callable[[Telling], None]], ...] = (
    ("A region with central storage, a model and a share", central_region),
    ("Two devices, and a third that is still to come", two_devices),
    ("The first deployment", first_deployment),
    ("The log of a device", log_of_a_device),
    ("Output to a share", output_on_the_share),
    ("A bad revision rolls back", bad_revision),
    ("The power of a device is cut", power_cut),
    ("A device restarts while the platform is down", platform_down),
    ("The third device comes late", late_device),
    ("All gone", remove_everything),
)
"""Each is shown under its heading. One more step is a function, and its line here."""


def _boot(telling: Telling, name: str) -> None:
    machine = telling.stage.lab.add(name, "systemd", Jetson(SHOPS[name]))
    telling.devices[name] = machine


def _join(telling: Telling, machine: Machine) -> None:
    """What a person does: run join.sh on the machine."""
    region = telling.api.live("regions", name=REGION) or {}
    made = telling.api.post("/v1/join-tokens", {"region_id": region["id"]})
    url = telling.stage.settings.api_url
    words = "--api", url, "--token", made["secret"], "--key", made["ssh_public_key"]
    telling.tell(
        f"{machine.name}$ curl -fsS {url}/join.sh | sh -s -- --api {url} --token … --key …"
    )
    line = f"curl -fsS {url}/join.sh | sh -s -- {shlex.join(map(str, words))}"
    telling.tell(machine.run("sh", "-c", line).strip())


def _add(telling: Telling, name: str) -> None:
    minion = "--region", REGION, "--minion-id", telling.devices[name].minion_id
    telling.baseload("device", "add", name, *minion)
