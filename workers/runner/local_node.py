"""What `make up` leaves behind: this machine an active node of region `home`, and credits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from activities.secrets.platform_key import platform_public_key
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
    """From an empty platform to this machine as an active node; the node.

    step: entered around each step, with its name.
    Raises: StackError, at the first step that fails.
    """
    step = step or _untold
    home = _Home(settings, commands, tell)
    with step("Enable the provider of own machines"):
        home.credits()
        provider = home.provider()
    with step("Create the region"):
        region = home.region(str(provider["id"]))
    with step("Make this machine a node"):
        home.announce(settings)
        return home.node(str(region["id"]))


class _Home:
    """Makes the steps from an empty platform to an active node; a step that is done is left out."""

    def __init__(self, settings: RunnerSettings, commands: Commands, tell: Tell) -> None:
        self._home = settings.home.absolute()
        self._api = PublicApi(settings)
        self._commands = commands
        self._machine = read_machine(self._home / "sshd")
        self._tell = tell

    def credits(self) -> None:
        """The administrator's account can pay."""
        account = self._api.get("/v1/account")
        if account["balance_microcredits"] <= 0:
            self._commands.baseload("credits", "add", CREDITS)

    def provider(self) -> Resource:
        """The provider `physical`, ready."""
        if self._api.live("providers", kind="physical") is None:
            self._commands.baseload("provider", "enable", "physical")
        return self._settled("providers", {"kind": "physical"}, "ready", ENABLING_LIMIT_S)

    def region(self, provider_id: str) -> Resource:
        """The region `home`, healthy. It requires nothing and leaves other log-ins alone."""
        if self._api.live("regions", name=REGION) is None:
            self._commands.baseload(
                "region", "create", REGION, "--provider", provider_id, "--relax", "all", "--shared"
            )
        return self._settled("regions", {"name": REGION}, "healthy", ENABLING_LIMIT_S)

    def announce(self, settings: RunnerSettings) -> None:
        """This machine makes itself known and lets the platform in, as any other would."""
        machine = self._machine
        key = platform_public_key(settings.home / "keys" / "platform_ed25519")
        self._commands.run(
            shortened(JOIN),
            "--api", settings.api_url,
            "--key", key,
            "--address", machine.host,
            "--port", str(machine.port),
            "--user", machine.user,
            "--host-key", shortened(machine.folder / "host_key.pub"),
            "--authorized-keys", shortened(machine.authorized_keys),
        )  # fmt: skip

    def node(self, region_id: str) -> Resource:
        """This machine, active: added by its minion id, inspected, prepared, then activated."""
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


def _untold(_name: str) -> AbstractContextManager[None]:
    return nullcontext()


def shortened(path: Path) -> str:
    """Relative to the checkout where it lies there: what a person would type."""
    return str(path.relative_to(CHECKOUT)) if path.is_relative_to(CHECKOUT) else str(path)
