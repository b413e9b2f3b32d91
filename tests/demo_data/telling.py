"""What the steps of the story share: the terminal, and the names of what they make."""

from __future__ import annotations

import os

from tests.demo_data.stack import Stage
from tests.demo_gcp.telling import Terminal
from workers.runner.narration import Story

REGION, STORAGE, NODES = "lab", "storage-1", ("node-1", "node-2")
WEB_BYTES = 150 << 20
"""Of the dataset from the web: three parts."""


class Telling(Terminal):
    """The terminal, and the stage beside it."""

    def __init__(self, stage: Stage, story: Story) -> None:
        super().__init__(stage.settings, story)
        self.stage = stage
        self.story = story
        self.numbers = os.urandom(1 << 20) * (WEB_BYTES >> 20)
        self.letters = {f"letters/{each}.bin": os.urandom(1 << 20) for each in "ab"}
        """The files of the folder of the NFS share that becomes a dataset."""

    def id_of(self, noun: str, name: str) -> str:
        return str((self.api.live(noun, name=name) or {})["id"])

    def must_move_to(self, node: str) -> None:
        """This node takes jobs, and no other one does."""
        for each in NODES:
            if each != node:
                self.baseload("node", "maintenance", each)
                self.reached("nodes", each, "maintenance")
        self.baseload("node", "activate", node)
        self.reached("nodes", node, "active")
