"""What each step of the story is made of: commands, waiting for what is seen, claims."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TypeVar

from tests.demo_gcp.stack import Stage
from workers.runner.commands import POLL_S, Commands, PublicApi, Resource
from workers.runner.lifecycle import StackError
from workers.runner.narration import Story
from workers.runner.settings import RunnerSettings

Found = TypeVar("Found")
LIMIT_S = 180.0
"""Of every wait: several times what it takes on two busy cores."""


class Terminal:
    """The platform as a person at a terminal has it."""

    def __init__(self, settings: RunnerSettings, story: Story) -> None:
        self.tell = story.tell
        self.api = PublicApi(settings)
        self.baseload = Commands(settings, story.tell, shown=True).baseload
        self._quietly = Commands(settings, story.tell, shown=False).baseload

    def reached(self, noun: str, name: str, *statuses: str) -> Resource:
        """The resource in one of these states, each state on the way told.

        Raises: StackError, when it fails or is not there within the limit.
        """
        found = self.api.live(noun, name=name)
        if found is None:
            raise StackError(f"{noun}: there is no {name}")
        return self.path_reached(f"/v1/{noun}/{found['id']}", *statuses)

    def path_reached(self, path: str, *statuses: str) -> Resource:
        """As `reached`, also of what is being removed."""
        noun, name = path.split("/")[2].removesuffix("s"), self.api.get(path)["name"]
        wanted = frozenset(statuses)
        return self.api.wait(
            path, wanted, LIMIT_S, lambda now: self.tell(f"{noun} {name}: {now.replace('_', ' ')}")
        )

    def until(self, claim: str, holds: Callable[[], Found]) -> Found:
        """Wait for it, and return what was found.

        Raises: StackError, when it is not so within the limit.
        """
        deadline = time.monotonic() + LIMIT_S
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise StackError(f"it is not so after {LIMIT_S:g} s that {claim}")
            time.sleep(POLL_S)
        self.tell(f"✓ {claim}")
        return found

    def refused(self, because: str, *arguments: str) -> None:
        """The command ends with an error that says so. Raises: StackError, when it does not."""
        self.tell(f"$ {shlex.join(('baseload', *arguments))}")
        try:
            self._quietly(*arguments)
        except StackError as refusal:
            said = str(refusal).partition("\n")[2]
            self.tell(said)
            self.expect(f"it is refused: {because}", because in said)
        else:
            raise StackError(f"it was not refused: {shlex.join(arguments)}")

    def expect(self, claim: str, holds: object) -> None:
        """Raises: StackError, when the claim is not so."""
        if not holds:
            raise StackError(f"it is not so that {claim}")
        self.tell(f"✓ {claim}")


class Telling(Terminal):
    """The terminal, with the simulated cloud beside it."""

    def __init__(self, stage: Stage, story: Story) -> None:
        super().__init__(stage.settings, story)
        self.stage = stage
        self.cloud = stage.cloud
