"""The bounds of what a node says: a type for each sort of value, none of them without an end.

A machine may say anything, so whatever enters a row, a bill or a file's name has a bound here. They
are far above what an honest machine has, and far below what harms the platform.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, WithJsonSchema

from activities.site.answers.text import plain
from workflows.contracts.base import MOST_SECONDS, Contract, bounded_seconds

MOST_BYTES = 1 << 50
"""The most bytes of a disk, a memory or an archive: a pebibyte."""
MOST_FILE_BYTES = (1 << 63) - 1
"""The most bytes of a file, by its file system. A job may make a hole of that size in its own
files and in its log, for which its node is not to blame."""
MOST_NAME = 300
MOST_RUNS = 4096
"""The most runs in one answer, which has room for fewer of the usual ones."""
MOST_CHARACTERS = 2000
"""The most characters of a text that people read; the rest of it is cut off."""


class Said(Contract, strict=True, allow_inf_nan=False):
    """What a node has said: nothing is converted, and unknown fields are dropped."""


Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
"""A duration that the node has measured with its monotonic clock, in seconds."""

ClockSeconds = Annotated[float, Field(ge=0, le=MOST_SECONDS), BeforeValidator(bounded_seconds)]
"""The seconds between two times of the node's wall clock, which may have been set meanwhile. So
what is too much for any duration counts as the longest, and breaks no rule."""

Instant = Annotated[
    AwareDatetime,
    Field(ge=datetime(1900, 1, 1, tzinfo=UTC), le=datetime(9000, 1, 1, tzinfo=UTC)),
]
"""An instant by the node's wall clock, which may be wrong by centuries."""


def _within_a_file(size: Any) -> Any:
    return min(size, MOST_FILE_BYTES) if type(size) is int else size


ByteCount = Annotated[int, Field(ge=0, le=MOST_BYTES)]
FileBytes = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES)]
"""The length of a file of a job."""
FolderBytes = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES), BeforeValidator(_within_a_file)]
"""The bytes of all files in a folder of a job; a greater sum counts as that of the largest file."""
Count = Annotated[int, Field(ge=0, le=1 << 30)]
ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]

RunName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,119}$")]
"""The name of a run's folder, as the agent accepts it; `RunNames` knows whether it is ours."""
BootId = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,100}$")]
Code = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""A word for programs, such as the code of a refusal or the reason of an exit."""
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Account = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Endpoint = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}$")]
"""An IPv4 address and a port."""
Address = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]{2,45}$")]
GpuId = Annotated[str, Field(pattern=r"^[A-Za-z0-9 _./:\[\]-]{1,100}$")]
"""The driver's id of a GPU, or in brackets why it has none; ids are joined with commas."""

Name = Annotated[
    str, Field(max_length=MOST_NAME), AfterValidator(lambda text: plain(text, MOST_NAME))
]
"""What hardware or software calls itself."""
Text = Annotated[
    str,
    AfterValidator(lambda text: plain(text, MOST_CHARACTERS)),
    WithJsonSchema({"type": "string", "maxLength": MOST_CHARACTERS}),
]
"""A sentence for people, of which the end is kept."""
