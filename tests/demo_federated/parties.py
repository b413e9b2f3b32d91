"""The parties of the story: the platform's administrator, the hospital, and the model's maker."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.demo_data.stack import Stage
from tests.demo_gcp.telling import Terminal
from workers.runner.commands import Resource
from workers.runner.narration import Story
from workers.runner.settings import RunnerSettings

HOSPITAL, MAKER = "hospital", "maker"
KEY_FILE = "admin.key"
"""Where a command finds the key of whoever calls it, in the folder that BASELOAD_HOME names."""


class Voice(Story):
    """The story as one party hears it: its name is before each of its commands."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(lambda line: story.tell(f"{name}{line}" if line[:2] == "$ " else line))


class Party(Terminal):
    """A terminal at which one party sits, with a key of its own."""

    def __init__(self, settings: RunnerSettings, story: Story, name: str) -> None:
        voice = Voice(story, name)
        super().__init__(settings, voice)
        self.name = name
        self.address = f"{name}@example.test"

    @property
    def account(self) -> Resource:
        return self.api.get("/v1/account")

    def id_of(self, noun: str, name: str) -> str:
        items = self.api.get(f"/v1/{noun}?limit=100")["items"]
        return next(str(each["id"]) for each in items if each["name"] == name)

    def settled(self, name: str) -> Resource:
        """The federated job of this name, once it is settled; to be refused is none of it."""
        found = self.reached("federated-jobs", name, "settled", "refused")
        reason = found["status_reason"]
        self.expect(f"{name} is settled: {reason}", found["status"] == "settled")
        return found


class Telling:
    """All parties, the stage, and what the story makes."""

    def __init__(self, stage: Stage, story: Story) -> None:
        self.stage = stage
        self.story = story
        self.admin = Party(stage.settings, story, "admin")
        self._parties: dict[str, Party] = {}

    @property
    def hospital(self) -> Party:
        return self._parties[HOSPITAL]

    @property
    def maker(self) -> Party:
        return self._parties[MAKER]

    def seat(self, name: str, plan: str) -> None:
        """Make the account of a party, and a key with which the party calls from now on."""
        address = f"{name}@example.test"
        self.admin.baseload("account", "create", name, "--owner", address, "--plan", plan)
        self.admin.baseload("credit", "add", "25", "--to", name)
        secret = self._first_key(self.account_id(name))
        home = self.folder(name)
        (home / KEY_FILE).write_text(secret)
        (home / KEY_FILE).chmod(0o600)
        settings = self.stage.settings.model_copy(update={"home": home})
        self._parties[name] = Party(settings, self.story, name)

    def _first_key(self, account_id: str) -> str:
        """A key for the first user of an account, which the administrator makes."""
        settings = self.stage.settings
        key = (settings.home / KEY_FILE).read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "X-Baseload-Account": account_id}
        with httpx.Client(base_url=settings.api_url, headers=headers, trust_env=False) as client:
            (user,) = client.get("/v1/users").raise_for_status().json()["items"]
            asked = {"name": "first", "user_id": user["id"]}
            made = client.post("/v1/api-keys", json=asked).raise_for_status().json()
        return str(made["secret"])

    def account_id(self, name: str) -> str:
        found = self.admin.api.get("/v1/accounts?limit=100")["items"]
        return next(str(each["id"]) for each in found if each["name"] == name)

    def folder(self, name: str) -> Path:
        """The home of a party's commands."""
        folder = self.stage.settings.home / "parties" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
