"""The result of `make up`: this machine as an active node of region `home`, and credits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from workers.runner.commands import Commands, PublicApi, Resource
from workers.runner.lifecycle import Tell
from workers.runner.local_sshd import read_machine
from workers.runner.settings import CHECKOUT, RunnerSettings

REGION = "home"
NODE = "this-machine"
CREDITS = "25"
ENABLING_LIMIT_S = 60
ONBOARDING_LIMIT_S = 180
JOIN = CHECKOUT / "deploy" / "node" / "join.sh"


Step = Callable[[str], AbstractContextManager[None]]


def join_home(
    settings: RunnerSettings, commands: Commands, tell: Tell, step: Step | None = None
) -> Resource:
    """Make this machine an active node of an empty platform, and return the node.

    step: a context that is entered around each step, with the step's name.
    Raises: StackError, at the first step that fails.
    """
    step = step or _silent_step
    home = _Home(settings, commands, tell)
    with step("Enable the provider of own machines"):
        home.credits()
        provider = home.provider()
    with step("Create the region"):
        region = home.region(str(provider["id"]))
    with step("Make this machine a node"):
        home.announce(settings, str(region["id"]))
        return home.node(str(region["id"]))


class _Home:
    """The steps from an empty platform to an active node; a step that is done is skipped."""

    def __init__(self, settings: RunnerSettings, commands: Commands, tell: Tell) -> None:
        self._home = settings.home.absolute()
        self._api = PublicApi(settings)
        self._commands = commands
        self._machine = read_machine(self._home / "sshd")
        self._tell = tell

    def credits(self) -> None:
        """Give the administrator's account credits, if it has none."""
        account = self._api.get("/v1/account")
        if account["balance_microcredits"] <= 0:
            self._commands.baseload("credit", "add", CREDITS)

    def provider(self) -> Resource:
        """Enable the provider `physical` and wait until it is ready."""
        if self._api.live("providers", kind="physical") is None:
            self._commands.baseload("provider", "enable", "physical")
        return self._settled("providers", {"kind": "physical"}, "ready", ENABLING_LIMIT_S)

    def region(self, provider_id: str) -> Resource:
        """Create the region `home`, which relaxes all requirements and leaves other logins open."""
        if self._api.live("regions", name=REGION) is None:
            self._commands.baseload(
                "region", "create", REGION, "--provider", provider_id, "--relax", "all", "--shared"
            )
        return self._settled("regions", {"name": REGION}, "healthy", ENABLING_LIMIT_S)

    def announce(self, settings: RunnerSettings, region_id: str) -> None:
        """Announce this machine and let its region's key in, with the script for any machine."""
        machine = self._machine
        token = self._api.post("/v1/join-tokens", {"region_id": region_id})
        self._commands.run(
            shortened(JOIN),
            "--api", settings.api_url,
            "--token", token["secret"],
            "--key", token["ssh_public_key"],
            "--address", machine.host,
            "--port", str(machine.port),
            "--user", machine.user,
            "--host-key", shortened(machine.folder / "host_key.pub"),
            "--authorized-keys", shortened(machine.authorized_keys),
        )  # fmt: skip

    def node(self, region_id: str) -> Resource:
        """Add this machine as a node by its minion id, and activate it once it is prepared."""
        minion = {"minion_id": self._machine.minion_id}
        if self._api.live("nodes", **minion) is None:
            self._commands.baseload(
                "node", "add", NODE, "--region", region_id, "--minion-id", minion["minion_id"]
            )
        node = self._settled("nodes", minion, "maintenance active", ONBOARDING_LIMIT_S)
        if node["status"] == "active":
            return node
        self._commands.baseload("node", "activate", str(node["id"]))
        return self._settled("nodes", minion, "active", ENABLING_LIMIT_S)

    def _settled(
        self, noun: str, wanted: dict[str, str], statuses: str, limit_s: float
    ) -> Resource:
        found = self._api.live(noun, **wanted)
        assert found is not None, f"no {noun} with {wanted} right after it was made"  # noqa: S101
        name = found["name"]
        return self._api.wait(
            f"/v1/{noun}/{found['id']}",
            frozenset(statuses.split()),
            limit_s,
            lambda status: self._tell(f"{noun.removesuffix('s')} {name}: {status}"),
        )


def _silent_step(_name: str) -> AbstractContextManager[None]:
    return nullcontext()


def shortened(path: Path) -> str:
    """The path relative to the checkout if it is inside, as a person would type it."""
    return str(path.relative_to(CHECKOUT)) if path.is_relative_to(CHECKOUT) else str(path)
