"""Deliveries of outputs to their destinations: an activity of the task queue `transfers`."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, assert_never

from sqlmodel import Session
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.outputs import StoredOutput, checked_output
from activities.artifacts.destinations.sending import Sending
from activities.artifacts.extras import module_of_extra
from activities.artifacts.scratch import scratch_folder
from activities.artifacts.slots import SlotHolder, holding, stale
from activities.artifacts.sources.tar_streams import refused
from activities.db.session import AWAY, database
from activities.db.tables import Job
from activities.jobs.submissions import submission_of
from activities.secrets.credentials import project_secret
from activities.settings import settings
from activities.storage.archives import ArchiveLimits
from activities.storage.blobs import blob_store
from activities.temporal.heartbeats import beating_aside, set_details
from activities.third_party_keys.stored import key_row, open_key
from workflows.contracts.deliveries import (
    JOB_ID,
    AzureDestination,
    DeliveryStatus,
    Destination,
    EntityDestination,
    GitDestination,
    GoogleStorageDestination,
    HuggingFaceDestination,
    KaggleDestination,
    KeyedDestination,
    ObjectStoreDestination,
    WebDestination,
)
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.statuses import JobStatus
from workflows.contracts.third_party_keys import KeyType
from workflows.effects.job_data import DeliverOutput, OutputDelivered
from workflows.rules.counts import counted
from workflows.rules.jobs.data_places import destination_of

TELL_INTERVAL_S = 1.0
"""Between two checks of an attempt that sends many small files, so the database has few of them."""
_PACKAGE = "activities.artifacts.destinations"
_extra = partial(module_of_extra, _PACKAGE)
MOST_DISK_GB = 2000
"""The largest `resources.disk_size_gb`, for a job that has asked for none."""


@activity.defn
def deliver_output(command: DeliverOutput) -> OutputDelivered:
    """Send the stored output of a job to its destination, going on after what was sent.

    Raises: ApplicationError `Refused` for what another attempt would not mend, `Unavailable` for a
    destination that does not answer now, `TransferWaits` while all slots of the account are taken,
    `Stale` when the output is not to be delivered any more, `NotFound`.
    """
    job_id = command.job_id
    with (
        beating_aside(),
        delivery_attempt_of(job_id, command.attempt) as attempt,
        scratch_folder(job_id, attempt.token) as scratch,
    ):
        attempt.check()
        order = _order_of(attempt)
        store = blob_store(settings().storage)
        output = checked_output(store, (job_id, command.attempt), order.workers, order.limits)
        linked = scratch / "linked"
        linked.mkdir()
        (own := scratch / "own").mkdir()
        progress = _Progress(attempt, output.file_count)
        done = _sent_before(output)
        progress.say(done)
        sending = Sending(
            job_id=job_id,
            attempt=command.attempt,
            files=partial(output.files, linked),
            packed=output.packed,
            file_count=output.file_count,
            size_bytes=output.size_bytes,
            packed_bytes=output.packed_bytes,
            scratch=own,
            done=done,
            tell=progress.tell,
            held=attempt.held,
        )
        place = _sent(order, sending)
        attempt.check()
    left_out = f" without {counted(output.left_out, 'link')}" if output.left_out else ""
    return OutputDelivered(
        place=f"{place}{left_out}", file_count=output.file_count, sent_bytes=output.size_bytes
    )


@dataclass(frozen=True)
class DeliveryAttempt(SlotHolder):
    """One attempt of a delivery, which may send while no later one has begun."""

    job_attempt: int = 1
    """The attempt of the job, whose output it is."""

    def under_way(self, session: Session, *, locked: bool = False) -> Job:
        """The row of the job. Raises: ApplicationError `Stale`, `NotFound`."""
        row = _job(session, self.subject_id, locked=locked)
        is_pending = row.delivery_status == DeliveryStatus.PENDING
        if row.status != JobStatus.UPLOADING or not is_pending or row.attempt != self.job_attempt:
            raise stale(f"{row.id}: the output of attempt {self.job_attempt} is not to be sent")
        return row


@contextmanager
def delivery_attempt_of(job_id: str, job_attempt: int) -> Iterator[DeliveryAttempt]:
    """An attempt of a delivery, which ends every earlier one of the job.

    Raises: ApplicationError `TransferWaits`, when all slots of the account are taken; `Stale`,
    `NotFound`.
    """
    with database().read() as session:
        account_id = _job(session, job_id).account_id
    new = DeliveryAttempt.new(job_id, account_id)
    attempt = DeliveryAttempt(job_id, account_id, new.token, job_attempt=job_attempt)
    with holding(attempt):
        yield attempt


class _Progress:
    """How many files an attempt has sent, for a person and a later attempt."""

    def __init__(self, attempt: DeliveryAttempt, file_count: int) -> None:
        self._attempt, self._file_count = attempt, file_count
        self._checked_at = 0.0

    def tell(self, done: int) -> None:
        """Raises: as `SlotHolder.check`, which is done now and then and at the end."""
        now = time.monotonic()
        is_due = now - self._checked_at >= TELL_INTERVAL_S or done == self._file_count
        if is_due or self._attempt.is_lost.is_set():
            try:
                self._attempt.check()
            except AWAY:  # The renewal beside it finds a slot that is lost.
                if self._attempt.is_lost.is_set():
                    raise
            self.say(done)
            self._checked_at = now

    def say(self, done: int) -> None:
        """Note for a later attempt that it goes on after so many files."""
        set_details(f"{done} of {counted(self._file_count, 'file')} sent", str(done))


@dataclass(frozen=True)
class _Order:
    """What the job's row and its project say of a delivery."""

    destination: Destination
    workers: int
    limits: ArchiveLimits
    """What one worker's output may hold."""
    key: Mapping[str, str] = field(repr=False)
    """The fields of the project's third-party key; empty: the destination has none."""
    authorization: str | None = field(repr=False)
    """The value of the secret that a destination of the web names."""


def _order_of(attempt: DeliveryAttempt) -> _Order:
    """Raises: ApplicationError `Refused`, when the project has the key or the secret no longer."""
    with database().read() as session:
        row = attempt.under_way(session)
        spec, project_id = submission_of(row.spec), row.project_id
        destination = destination_of(spec)
        if destination is None:
            raise refused(f"{row.id}: its output has no destination")
        key: Mapping[str, str] = {}
        if isinstance(destination, KeyedDestination):
            key = _key(session, project_id, KeyType(destination.type))
        name = destination.secret if isinstance(destination, WebDestination) else None
        authorization = None if name is None else _secret(session, project_id, name)
    most_bytes = (spec.resources.disk_size_gb or MOST_DISK_GB) * 10**9
    limits = ArchiveLimits(most_bytes, allows_backslashes=True)
    filled = _filled(destination, attempt.subject_id)
    return _Order(filled, len(spec.workers), limits, key, authorization)


def _filled(destination: Destination, job_id: str) -> Destination:
    """The destination with the id of the job where it has `{job_id}`."""
    texts = {
        name: value.replace(JOB_ID, job_id)
        for name, value in destination.model_dump().items()
        if isinstance(value, str)
    }
    return destination.model_copy(update=texts)


def _sent(order: _Order, sending: Sending) -> str:
    """Send the output, and say where it is. The modules of the kinds are loaded on first use."""
    match order.destination:
        case ObjectStoreDestination() as to:
            place = _extra("object_stores", "s3").deliver_bucket(to, order.key, sending)
        case GoogleStorageDestination() as to:
            bucket = _extra("google_storage", "gcp")
            place = bucket.deliver_google_bucket(to, order.key, sending)
        case AzureDestination() as to:
            place = _extra("azure", "azure").deliver_container(to, order.key, sending)
        case WebDestination() as to:
            place = _kind("web").deliver_web(to, order.authorization, sending)
        case GitDestination() as to:
            place = _kind("git").deliver_git(to, order.key, sending)
        case HuggingFaceDestination() as to:
            hub = _extra("huggingface", "huggingface")
            place = hub.deliver_huggingface(to, order.key, sending)
        case KaggleDestination() as to:
            place = _kind("kaggle").deliver_kaggle(to, order.key, sending)
        case EntityDestination() as to:
            place = _kind("entities").deliver_entity(to, sending)
        case _:
            assert_never(order.destination)
    return str(place)


def _kind(module: str) -> Any:
    return import_module(f"{_PACKAGE}.{module}")


def _sent_before(output: StoredOutput) -> int:
    """How many files earlier attempts have sent, as their heartbeats say."""
    details = activity.info().heartbeat_details
    said = details[1] if len(details) > 1 else ""
    done = int(said) if isinstance(said, str) and said.isdecimal() else 0
    return min(done, output.file_count)


def _key(session: Session, project_id: str, kind: KeyType) -> dict[str, str]:
    row = key_row(session, project_id, kind)
    if row is None:
        raise refused(
            f"project {project_id} has no third-party key {kind} any more: set it by "
            f"`baseload project key set {kind}` before the next job"
        )
    return open_key(row)


def _secret(session: Session, project_id: str, name: str) -> str:
    value = project_secret(session, f"projects/{project_id}/{name}")
    if value is None:
        raise refused(
            f"project {project_id} has no secret {name} any more: set it by `baseload secret set "
            f"{name}` before the next job"
        )
    return value


def _job(session: Session, job_id: str, *, locked: bool = False) -> Job:
    row = session.get(Job, job_id, with_for_update=locked)
    if row is None:
        raise ApplicationError(f"{job_id}: there is no such job", type=NOT_FOUND)
    return row
