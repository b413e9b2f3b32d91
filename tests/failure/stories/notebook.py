"""The lives of notebooks: stopped, started again where they were or elsewhere, with their files."""

from typing import ClassVar

from tests.failure.cases import Mode
from tests.failure.stories.job import CANCEL, ENDING, STEP, JobStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.fake_world import Machine
from workflows.contracts.jobs import EndRequest, JobRequest, run_id
from workflows.contracts.statuses import JobStatus, JobType
from workflows.effects.jobs import RunFolder

STOP = EndRequest(reason="for the night")


class NotebookStory(JobStory):
    """Stopped while it runs, started again, ended by itself, removed at rest."""

    type = JobType.NOTEBOOK
    only = frozenset({"start_worker"})
    planned_end = JobStatus.ARCHIVED

    async def begin(self) -> None:
        self.has_left = self.again = self.gone = False
        await super().begin()

    async def leaves(self) -> None:
        """What ends the first attempt."""
        await self.signal(self.workflow_id, "stop", STOP)

    async def _command_ends(self) -> None:
        if self.attempt > 1:
            await super()._command_ends()
        elif not self.has_left:
            self.has_left = True
            await self.leaves()

    async def _at_rest(self) -> None:
        if self.attempt == 1 and not self.again:
            self.again = True
            await self.signal(self.workflow_id, "start_again")
        elif self.attempt > 1 and not self.gone:
            self.gone = True
            await self.signal(self.workflow_id, "remove")


class StoppedNotebookStory(NotebookStory):
    """As above, with files in its work folder, its output and its state, which it finds again."""

    only = frozenset({"save_last_snapshot", "stage_worker"})
    variant = "stopped"
    nth: ClassVar[dict[str, int]] = {"save_last_snapshot": 1, "stage_worker": 2}
    next_node: ClassVar[str] = "nod-1"

    @property
    def request(self) -> JobRequest:
        return super().request.model_copy(update={"state_interval_s": 3600})

    @property
    def nodes(self) -> tuple[str, ...]:
        return ("nod-1",) if self.attempt == 1 else (self.next_node,)

    async def begin(self) -> None:
        self.world.machines.setdefault("nod-2", Machine())
        self.written: set[int] = set()
        await super().begin()

    async def _command_ends(self) -> None:
        name = run_id(self.job_id, 0, self.attempt)
        if self.attempt not in self.written and name in self.world.files:
            self.written.add(self.attempt)
            self.world.ever[name].kept += STEP
            self.world.write(name, f"{self.attempt};")
        await super()._command_ends()

    async def _at_rest(self) -> None:
        self._look_at_the_store()
        await super()._at_rest()

    def _look_at_the_store(self) -> None:
        """At rest all its files are in the store, once, and nowhere else."""
        here = [name for one in self.world.machines.values() for name in one.runs]
        if self.stub not in ("clean_worker", "stage_worker"):
            self.expect(not here, f"at rest, and on its node is {here}")
        if self.mode in HARMLESS:
            text = "".join(f"{attempt};" for attempt in range(1, self.attempt + 1))
            copy = self.world.copies.get((self.job_id, 0))
            self.expect(copy == dict.fromkeys(RunFolder, text), f"at rest is stored {copy}")

    def look(self) -> None:
        super().look()
        self.expect(not self.world.states, "a snapshot is left")
        first, second = (run_id(self.job_id, 0, attempt) for attempt in (1, 2))
        if self.mode not in HARMLESS:
            self._look_at_what_is_told(second)
            return
        found, left = self.world.found.get(second), self.world.files.get(first)
        self.expect(found == left, f"it has found {found}, and had left {left}")
        where = [self.world.staged_on.get(name) for name in (first, second)]
        self.expect(where == ["nod-1", self.next_node], f"it has run on {where}")

    def _look_at_what_is_told(self, second: str) -> None:
        """Where it begins with nothing, a person was told that its files were not saved."""
        run = self.world.ever.get(second)
        has_begun = run is not None and run.starts > 0  # Else it was ended while it was staged.
        if has_begun and self.world.found.get(second) == {}:
            told = "job.state-not-saved" in self.world.events[self.job_id]
            self.expect(told, "it has found nothing, and nobody was told")
        canceled = self.mode is Mode.CANCELED and "job.canceled" in self.world.events[self.job_id]
        if canceled:
            self.expect(CANCEL.reason in self.world.said, f"nobody reads {CANCEL.reason}")


class MovedNotebookStory(StoppedNotebookStory):
    """Started again on another node."""

    only = frozenset({"stage_worker"})
    variant = "moved"
    next_node = "nod-2"


class LeavingNotebookStory(StoppedNotebookStory):
    """On a node that ends as planned: it leaves with its files, and goes on elsewhere."""

    variant = "leaving"
    next_node = "nod-2"

    async def leaves(self) -> None:
        await self.signal(self.workflow_id, "node_ending", ENDING)

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        if self.mode in HARMLESS:
            told = "job.rescheduled" in self.world.events[self.job_id]
            self.expect(told, "nobody was told that it is rescheduled")


class LastSnapshotStory(StoppedNotebookStory):
    """The one that is broken where a notebook stops for the second time."""

    only = frozenset({"save_last_snapshot"})
    variant = ""
    nth: ClassVar[dict[str, int]] = {"save_last_snapshot": 2}


class VolumeNotebookStory(NotebookStory):
    """On a leased machine, with a volume that it writes to: what it has written is its content."""

    only = frozenset({"store_volume", "store_last_volume", "record_volume"})
    leased = ("nod-1",)
    volume_id: ClassVar[str] = "vol-1"
    early: ClassVar[int] = 2
    late: ClassVar[int] = 5

    @property
    def request(self) -> JobRequest:
        asked = {"state_interval_s": 1, "volumes": (self.volume_id,)}
        return super().request.model_copy(update=asked)

    async def _command_ends(self) -> None:
        written = self.world.written
        if self.attempt == 1 and not self.has_left:
            written[self.volume_id] = max(written[self.volume_id], self.early)
            if not (self._content() or self._is_told()):
                return  # Its interval has not come yet.
            written[self.volume_id] = self.late
        await super()._command_ends()

    def _content(self) -> int:
        """How many files the content of the volume has that was recorded."""
        found = self.world.volume_contents.get(self.volume_id)
        return found[1].file_count if found else 0

    def _is_told(self) -> bool:
        return "job.volume-not-stored" in self.world.events[self.job_id]

    def look(self) -> None:
        super().look()
        found, written = self._content(), self.world.written[self.volume_id]
        if self.mode in HARMLESS:
            self.expect(found == self.late, f"the volume has {found} files of {self.late}")
        has_run = any(run.starts for run in self.world.ever.values())
        if has_run and found < written:
            self.expect(self._is_told(), f"{found} of {written} are stored, and nobody was told")


NOTEBOOK_STORIES = (
    NotebookStory,
    StoppedNotebookStory,
    MovedNotebookStory,
    LeavingNotebookStory,
    LastSnapshotStory,
    VolumeNotebookStory,
)
