"""Effects of volumes that a job writes to: their content, taken from a run and recorded."""

from datetime import datetime

from pydantic import Field

from workflows.contracts.artifacts import Content
from workflows.contracts.base import Contract
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand

PLACE = r"^[0-9a-z][0-9a-z-]{0,99}$"


class StoreVolume(SiteCommand):
    """Store the files of a volume that a run writes to, whole or not at all, beside its content.

    at: when the workflow asked; of several contents the one with the latest `at` is the newest.
    """

    run_id: str
    volume_id: str
    at: datetime
    last_mark: str = ""
    """The fingerprint of the files that are stored or that the run began with; files with the same
    one are not stored again."""


class VolumeStored(Contract):
    """What is stored of a volume, but not its content before it is recorded."""

    mark: str = Field(max_length=64)
    """The fingerprint of the files, by their node."""
    place: str | None = Field(default=None, pattern=PLACE)
    """Where it is stored; None: the files have not changed."""
    content: Content | None = None


class RecordVolume(Contract):
    """Make what is stored the content of a volume, if the run is still the one that writes it."""

    volume_id: str
    job_id: str
    attempt: int
    at: datetime
    place: str = Field(pattern=PLACE)
    content: Content


class VolumeRecorded(Contract):
    refusal: str | None = None
    """Why it is not the content of the volume; None: it is."""


store_volume = Effect(
    "store_volume",
    StoreVolume,
    VolumeStored,
    queue=None,
    start_to_close_s=4 * 3600,
    schedule_to_close_s=4 * 3600,
    heartbeat_s=HEARTBEAT_S,
    attempts=1,
)
"""One attempt, because the next interval tries again."""
store_last_volume = Effect(
    "store_volume",
    StoreVolume,
    VolumeStored,
    queue=None,
    start_to_close_s=4 * 3600,
    schedule_to_close_s=6 * 3600,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
)
"""Before the files of the run are removed from its node: no interval tries again."""
record_volume = Effect("record_volume", RecordVolume, VolumeRecorded, start_to_close_s=120)
