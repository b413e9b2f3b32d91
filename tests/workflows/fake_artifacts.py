"""The contents of artifacts in the tests' world."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field

from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.fake_allocations import Allocations
from workflows.contracts import errors
from workflows.contracts.artifacts import Content, Progress
from workflows.contracts.base import Done
from workflows.contracts.jobs import run_id
from workflows.effects import artifacts, job_data, volumes

CONTENT = Content(sha256="c" * 64, size_bytes=3072, unpacked_bytes=1000, file_count=1)
LONGEST_TRANSFER_S = 120.0


@dataclass
class Artifacts(Allocations):
    """What is stored of artifacts, and how far their transfers have come."""

    contents: dict[str, Content] = field(default_factory=dict)
    transfers: list[artifacts.TransferArtifact] = field(default_factory=list)
    """Every transfer that was begun."""
    events: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The types of the events of each resource, in order."""
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many files a run has written to each volume."""
    stored_volumes: dict[tuple[str, str], Content] = field(default_factory=dict)
    """What is stored of volumes, recorded or not, by volume and place."""
    volume_contents: dict[str, tuple[str, Content]] = field(default_factory=dict)
    """The content of each volume that was written, and its place."""
    volume_writers: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The job and the attempt that hold a volume, where it is not who asks."""
    awaited: dict[str, str] = field(default_factory=dict)
    """What each job waits for before it asks for resources, in words."""
    lost_data: dict[str, str] = field(default_factory=dict)
    """Why a job's data will never be there."""
    outputs: set[str] = field(default_factory=set)
    """The runs whose outputs are stored."""
    destinations: set[str] = field(default_factory=set)
    """The runs whose outputs have arrived at their destinations."""
    looks_wanted: int = 0
    """How often its progress must have been recorded before a transfer ends."""

    async def transfer_artifact(self, asked: artifacts.TransferArtifact) -> Content:
        self.transfers.append(asked)
        with contextlib.suppress(AssertionError):
            await eventually(
                lambda: self._looks_at(asked.artifact_id) >= self.looks_wanted,
                "its progress is recorded",
                LONGEST_TRANSFER_S,
            )
        row = self.rows.get(asked.artifact_id)
        if row is not None and row.status in ("removing", "archived"):
            raise ApplicationError("is not being transferred any more", type=errors.STALE)
        self.contents[asked.artifact_id] = CONTENT
        return CONTENT

    def _looks_at(self, artifact_id: str) -> int:
        return sum(one.endswith(".progress") for one in self.events[artifact_id])

    def find_progress(self, _: artifacts.FindProgress) -> Progress:
        return Progress(bytes_transferred=1024, file_count=1, total_bytes=CONTENT.size_bytes)

    def find_job_data(self, asked: job_data.FindJobData) -> job_data.JobDataFound:
        row = self.rows.get(asked.job_id)
        return job_data.JobDataFound(
            waits_for=self.awaited.get(asked.job_id, ""),
            failure=self.lost_data.get(asked.job_id, ""),
            sequence=row.sequence if row else 0,
        )

    def deliver_output(self, asked: job_data.DeliverOutput) -> job_data.OutputDelivered:
        if asked.job_id in self.held:
            raise AssertionError(f"{asked.job_id} holds machines while its output is sent")
        run = run_id(asked.job_id, 0, asked.attempt)
        if run not in self.outputs:
            raise ApplicationError(f"{run}: has no output", type=errors.REFUSED, non_retryable=True)
        self.destinations.add(run)
        return job_data.OutputDelivered(place="s3://results", file_count=1, sent_bytes=7)

    def store_volume(self, asked: volumes.StoreVolume) -> volumes.VolumeStored:
        """Store what the run has written so far, of which its mark tells."""
        written = self.written[asked.volume_id]
        mark = f"{written:x}"
        if mark == asked.last_mark:
            return volumes.VolumeStored(mark=mark)
        place = f"{asked.at:%Y%m%dt%H%M%S%f}-{len(self.stored_volumes)}"
        content = CONTENT.model_copy(update={"file_count": written})
        self.stored_volumes[asked.volume_id, place] = content
        return volumes.VolumeStored(mark=mark, place=place, content=content)

    def record_volume(self, asked: volumes.RecordVolume) -> volumes.VolumeRecorded:
        holder = self.volume_writers.get(asked.volume_id, (asked.job_id, asked.attempt))
        if holder != (asked.job_id, asked.attempt):
            return volumes.VolumeRecorded(refusal=f"{holder[0]} writes to it")
        before = self.volume_contents.get(asked.volume_id)
        if before is None or before[0] <= asked.place:
            self.volume_contents[asked.volume_id] = (asked.place, asked.content)
        return volumes.VolumeRecorded()

    def remove_content(self, asked: artifacts.RemoveContent) -> Done:
        self.contents.pop(asked.artifact_id, None)
        return Done()
