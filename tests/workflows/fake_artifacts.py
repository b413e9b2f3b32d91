"""The contents of artifacts in the tests' world."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from temporalio.exceptions import ApplicationError

from tests.workflows.fake_allocations import Allocations
from workflows.contracts import errors
from workflows.contracts.artifacts import Content, Progress
from workflows.contracts.base import Done
from workflows.effects import artifacts

CONTENT = Content(sha256="c" * 64, size_bytes=3072, unpacked_bytes=1000, file_count=2)
LONGEST_TRANSFER_S = 2.0


@dataclass
class Artifacts(Allocations):
    """What is stored of artifacts, and how far their transfers have come."""

    contents: dict[str, Content] = field(default_factory=dict)
    transfers: list[artifacts.TransferArtifact] = field(default_factory=list)
    """Every transfer that was begun."""
    looks_wanted: int = 0
    """How often somebody must have asked how far a transfer is before it ends."""
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def transfer_artifact(self, asked: artifacts.TransferArtifact) -> Content:
        self.transfers.append(asked)
        if self.looks_wanted > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.looked.wait(), LONGEST_TRANSFER_S)
        row = self.rows.get(asked.artifact_id)
        if row is not None and row.status in ("removing", "archived"):
            raise ApplicationError("is not being transferred any more", type=errors.STALE)
        self.contents[asked.artifact_id] = CONTENT
        return CONTENT

    def find_progress(self, _: artifacts.FindProgress) -> Progress:
        self.looks_wanted -= 1
        if self.looks_wanted <= 0:
            self.looked.set()
        return Progress(bytes_transferred=1024, file_count=1, total_bytes=CONTENT.size_bytes)

    def remove_content(self, asked: artifacts.RemoveContent) -> Done:
        self.contents.pop(asked.artifact_id, None)
        return Done()
