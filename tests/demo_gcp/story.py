"""What is told, from a machine of one's own and a key to the bill."""

from __future__ import annotations

from tests.demo_gcp.stack import Stage
from tests.e2e.platform import JOIN
from tests.lab.hardware import put_gpus
from tests.lab.machine import Machine
from workers.runner.commands import Commands, PublicApi, Resource
from workers.runner.home import shortened
from workers.runner.lifecycle import StackError
from workers.runner.story import Story

OWN_REGION, OWN_NODE = "home", "own-a100"
A100, A100_MIB = "NVIDIA A100-SXM4-40GB", 40_960
CLOUD_REGION, BURST_REGION = "us-central1", "burst"
STEP_LIMIT_S = 180.0


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    scene = Scene(stage, story)
    scene.own_machine()
    scene.enable()
    scene.region()


class Scene:
    """Each method is one step of the story, or a few that belong together."""

    def __init__(self, stage: Stage, story: Story) -> None:
        self._stage = stage
        self._story = story
        self._api = PublicApi(stage.settings)
        self._commands = Commands(stage.settings, story.tell, shown=True)

    def own_machine(self) -> None:
        """A machine of the account's own is an active node, with one GPU."""
        with self._story.step("A machine of your own, with one A100"):
            self._commands.baseload("credits", "add", "25")
            self._commands.baseload("provider", "enable", "physical", "--wait")
            provider = "--provider", "physical"
            self._commands.baseload("region", "create", OWN_REGION, *provider, "--relax", "all")
            self._reached("regions", OWN_REGION, "healthy")
            machine = self._stage.lab.add(OWN_NODE)
            put_gpus(machine, A100, 1, A100_MIB)
            self._announce(machine)
            minion = "--region", OWN_REGION, "--minion-id", machine.minion_id
            self._commands.baseload("node", "add", OWN_NODE, *minion)
            self._reached("nodes", OWN_NODE, "maintenance")
            self._commands.baseload("node", "activate", OWN_NODE)
            self._reached("nodes", OWN_NODE, "active")

    def enable(self) -> None:
        """The cloud is checked, and prepared."""
        with self._story.step("Enable Google Cloud (simulated)"):
            key = "--key", shortened(self._stage.key)
            self._commands.baseload("provider", "enable", "gcp", *key, "--wait")
            self._commands.baseload("provider", "checks", "gcp")
        with self._story.step("Quotas: what may run there"):
            self._commands.baseload("quotas", "gcp", CLOUD_REGION)

    def region(self) -> None:
        """A region in the cloud, whose storage node runs all the time."""
        with self._story.step("A region in the cloud, with its storage node"):
            where = BURST_REGION, CLOUD_REGION, "--provider", "gcp", "--storage-class", "micro"
            limit = "--timeout", f"{STEP_LIMIT_S:g}"
            self._commands.baseload("region", "add", *where, "--wait", *limit)
            self._commands.baseload("node", "ls")
            self._commands.baseload("leases")
            self._expect(len(self._stage.cloud.machines()) == 1, "the cloud lists one machine")

    # ── pieces ──────────────────────────────────────────────────────────────────────────────

    def _announce(self, machine: Machine) -> None:
        """What a person does on the machine: run join.sh."""
        (machine.disk / "root/join.sh").write_bytes(JOIN.read_bytes())
        key = str(self._api.get("/v1/platform")["ssh_public_key"])
        asked = "--api", self._stage.settings.api_url, "--key", key
        self._story.tell(f"{OWN_NODE}$ sh join.sh --api {self._stage.settings.api_url} --key …")
        self._story.tell(machine.run("sh", "/root/join.sh", *asked).strip())

    def _reached(
        self, noun: str, name: str, status: str, limit_s: float = STEP_LIMIT_S
    ) -> Resource:
        """Raises: StackError, when it fails or is not there within the limit."""
        found = self._api.live(noun, name=name)
        if found is None:
            raise StackError(f"{noun}: there is no {name}")
        said = f"{noun.removesuffix('s')} {name}"
        return self._api.wait(
            f"/v1/{noun}/{found['id']}",
            frozenset({status}),
            limit_s,
            lambda now: self._story.tell(f"{said}: {now}"),
        )

    def _expect(self, holds: bool, claim: str) -> None:
        """Raises: StackError, when the claim is not so."""
        if not holds:
            raise StackError(f"it is not so that {claim}")
        self._story.tell(f"✓ {claim}")
