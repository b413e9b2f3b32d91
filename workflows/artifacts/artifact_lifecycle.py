"""The lifecycle of a dataset, a model, a checkpoint or a volume."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.artifacts.regional_transfer import transfer_regional
from workflows.artifacts.transfer_progress import Rate, progress_event
from workflows.contracts.artifacts import (
    ArtifactEvent,
    ArtifactReport,
    ArtifactRequest,
    ArtifactStatus,
    Content,
    RegionalSource,
    RetryTransfer,
    UploadComplete,
    UploadSource,
)
from workflows.contracts.errors import TRANSFER_WAITS
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import ArtifactChanges, noun_of
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.effects.artifacts import (
    FindProgress,
    RemoveContent,
    TransferArtifact,
    find_progress,
    remove_content,
    transfer_artifact,
)
from workflows.effects.lifecycles import FindDependents, find_dependents
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, wait_until, with_watch
from workflows.rules.counts import counted

IDLE_INTERVAL = timedelta(days=30)
UPLOAD_LIMIT = timedelta(days=7)
"""How long the parts of an upload are waited for."""
FIRST_PROGRESS_INTERVAL = timedelta(seconds=15)
LAST_PROGRESS_INTERVAL = timedelta(minutes=10)
"""Between two events of a transfer's progress: at first, and later in a transfer of hours."""
SLOT_LIMIT = timedelta(days=2)
"""How long a transfer waits until its account has a slot free."""
FIRST_SLOT_INTERVAL = timedelta(seconds=10)
LAST_SLOT_INTERVAL = timedelta(minutes=5)
"""Between two requests of a slot: at first, and later."""
REMOVAL_INTERVAL = timedelta(minutes=10)
"""Between two tries to remove what is stored."""
FINDS_USERS = "transfers-go-on-when-their-removal-is-refused"


@workflow.defn(name="ArtifactLifecycle")
class ArtifactLifecycle:
    """The stored files of one dataset, model, checkpoint or volume, until they are removed.

    new → transferring → ready · failed, which a person may have tried again → removing → archived
    """

    @workflow.init
    def __init__(self, request: ArtifactRequest) -> None:
        self._request = request
        self._noun = noun_of(request.artifact_id).name
        self._journal = Journal(
            request.artifact_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._source = request.source
        self._content = request.content
        self._removal = request.removal
        self._status = request.resumed_status or ArtifactStatus.NEW
        self._inbox = Inbox()

    @workflow.run
    async def run(self, request: ArtifactRequest) -> ArtifactReport:
        if request.removal is not None:
            await self._carry_out(request.removal.removal)
        elif request.resumed_status in (None, ArtifactStatus.TRANSFERRING):
            await self._transfer()
        while self._status is not ArtifactStatus.ARCHIVED:
            await self._serve()
        return self._report()

    async def _serve(self) -> None:
        message = await self._inbox.wait(IDLE_INTERVAL)
        if isinstance(message, Removal):
            await self._remove(message)
        elif isinstance(message, RetryTransfer) and self._status is ArtifactStatus.FAILED:
            await self._transfer()
        await self._journal.continue_when_long()

    async def _transfer(self) -> None:
        """Ready with the content of the source, or failed with the reason."""
        self._status = ArtifactStatus.TRANSFERRING
        message = f"its content is being transferred: {self._source.type}"
        await self._write(ArtifactEvent.TRANSFERRING, message)
        try:
            content = await with_watch(self._fetch(), self._until_removed())
        except Interrupted:
            return
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._fail(cause_of(failure)[1])
            return
        if content is None:
            await self._fail(f"its upload was not completed within {UPLOAD_LIMIT.days} days")
            return
        self._status, self._content = ArtifactStatus.READY, content
        files = counted(content.file_count, "file")
        message = f"stored: {files}, {counted(content.unpacked_bytes, 'byte')}"
        await self._write(ArtifactEvent.READY, message, content=content)

    async def _until_removed(self) -> None:
        """Wait until it is to be removed, and no job uses it; a refusal leaves its transfer as it
        is."""
        while True:
            await workflow.wait_condition(self._has_removal)
            if not workflow.patched(FINDS_USERS) or not (users := await self._users()):
                return
            self._inbox.pick(Removal)
            await self._write(
                ArtifactEvent.REMOVAL_REFUSED, _refusal(users), reason=self._journal.reason
            )

    async def _fetch(self) -> Content | None:
        """The content, once it is stored; None: the parts of the upload have not come."""
        if not await wait_until(self._is_uploaded, UPLOAD_LIMIT, "the parts of the upload"):
            return None
        return await self._fetch_in_slot()

    async def _fetch_in_slot(self) -> Content:
        """The content, once a transfer has stored it for which the account had a slot free."""
        pause, ends_at = FIRST_SLOT_INTERVAL, workflow.now() + SLOT_LIMIT
        while True:
            try:
                return await with_watch(self._transfer_once(), self._tell_progress())
            except EFFECT_FAILED as failure:
                kind, reason = cause_of(failure)
                if kind != TRANSFER_WAITS or workflow.now() >= ends_at:
                    raise
            if reason != self._journal.reason:
                await self._write(ArtifactEvent.TRANSFERRING, reason, reason=reason)
            await workflow.sleep(pause, summary="its account has all its slots taken")
            pause = min(2 * pause, LAST_SLOT_INTERVAL)

    async def _transfer_once(self) -> Content:
        source, artifact_id = self._source, self._request.artifact_id
        if isinstance(source, RegionalSource):
            return await transfer_regional(artifact_id, source)
        return await transfer_artifact(TransferArtifact(artifact_id=artifact_id, source=source))

    def _is_uploaded(self) -> bool:
        if complete := self._inbox.pick(UploadComplete):
            self._source = complete.source
        source = self._source
        return not isinstance(source, UploadSource) or source.part_count is not None

    async def _tell_progress(self) -> None:
        """Record the progress of a transfer in ever longer intervals, until it has ended."""
        pause, rate = FIRST_PROGRESS_INTERVAL, Rate()
        while True:
            await workflow.sleep(pause, summary="the transfer goes on")
            try:
                progress = await find_progress(FindProgress(artifact_id=self._request.artifact_id))
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                continue  # The transfer itself says when something is wrong.
            event = progress_event(self._noun, progress, rate.at(workflow.now(), progress))
            await self._journal.write(self._status, self._changes(), event)
            pause = min(2 * pause, LAST_PROGRESS_INTERVAL)

    async def _fail(self, reason: str) -> None:
        self._status = ArtifactStatus.FAILED
        await self._write(ArtifactEvent.FAILED, reason, reason=reason)

    async def _remove(self, removal: Removal) -> None:
        """Remove the content, unless jobs use it. Whoever uses it from now on is refused."""
        was_transferring = self._status is ArtifactStatus.TRANSFERRING
        self._status = ArtifactStatus.REMOVING
        message = "its content is being removed"
        await self._write(ArtifactEvent.REMOVING, message, removal=removal)
        await self._carry_out(removal, was_transferring=was_transferring)

    async def _carry_out(self, removal: Removal, *, was_transferring: bool = False) -> None:
        self._removal = RemovalProgress(removal=removal)
        if users := await self._users():
            if was_transferring and workflow.patched(FINDS_USERS):
                # A job came to use it after its transfer was interrupted.
                self._status, self._removal = ArtifactStatus.TRANSFERRING, None
                await self._write(ArtifactEvent.REMOVAL_REFUSED, _refusal(users))
                await self._transfer()
                return
            await self._stay(_refusal(users))
            return
        while reason := await self._content_left():
            await self._write(ArtifactEvent.REMOVING, reason, reason=reason)
            await workflow.sleep(REMOVAL_INTERVAL, summary="its content is there")
            await self._journal.continue_when_long()
        self._status, self._removal = ArtifactStatus.ARCHIVED, None
        await self._write(ArtifactEvent.ARCHIVED, "removed")

    async def _users(self) -> int:
        """How many jobs that have not ended, and device configurations, use it."""
        found = await find_dependents(FindDependents(resource_id=self._request.artifact_id))
        await self._journal.stop_if_behind(found.sequence)
        return len(found.ids)

    async def _stay(self, message: str) -> None:
        """Go back to what it was before its removal was asked for."""
        self._removal = None
        has_content = self._content is not None
        self._status = ArtifactStatus.READY if has_content else ArtifactStatus.FAILED
        reason = None if has_content else message
        await self._write(ArtifactEvent.REMOVAL_REFUSED, message, reason=reason)

    async def _content_left(self) -> str:
        """Remove what is stored; why it could not be removed."""
        try:
            await remove_content(RemoveContent(artifact_id=self._request.artifact_id))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            return f"its content could not be removed yet: {cause_of(failure)[1]}"
        return ""

    def _has_removal(self) -> bool:
        return self._inbox.holds(Removal)

    @workflow.signal(description="Remove it; refused while jobs use it.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="All parts of its upload are there.")
    def complete(self, complete: UploadComplete) -> None:
        if self._status in (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING):
            self._inbox.put(complete)
        elif self._status is ArtifactStatus.FAILED:  # Its limit has passed meanwhile: for a retry.
            self._source = complete.source

    @workflow.signal(description="Try a failed transfer again.")
    def retry(self, retry: RetryTransfer) -> None:
        self._inbox.put(retry)

    @workflow.query(description="Status and reason.")
    def status(self) -> ArtifactReport:
        return self._report()

    def _next_run(self) -> ArtifactRequest | None:
        """The request of the next workflow run; None while messages wait."""
        if len(self._inbox):
            return None
        update = {
            "source": self._source,
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
            "content": self._content,
            "removal": self._removal,
        }
        return self._request.model_copy(update=update)

    async def _write(
        self,
        word: ArtifactEvent,
        message: str,
        *,
        reason: str | None = None,
        content: Content | None = None,
        removal: Removal | None = None,
    ) -> None:
        changes = self._changes().model_copy(update={"content": content, "removal": removal})
        event = Event(type=word.of(self._noun), message=message)
        await self._journal.write(self._status, changes, event, reason=reason)

    def _changes(self) -> ArtifactChanges:
        return ArtifactChanges.model_validate({"noun": self._noun})

    def _report(self) -> ArtifactReport:
        return ArtifactReport(
            artifact_id=self._request.artifact_id,
            status=self._status,
            status_reason=self._journal.reason,
        )


def _refusal(users: int) -> str:
    """Who may read these events may not read each of the jobs and device configurations."""
    found = counted(users, "job or device configuration", "jobs or device configurations")
    return f"asked to be removed, is used by {found}: stays"
