"""Sessions: what the API asks of a site, and what both ends of a session say to each other.

The log of a device is a session too, in which the site alone says something.

A message is one text of JSON; bytes travel beside them as binary messages, whose first byte says
which stream they are of. No bytes of a session, and no command of one, pass through Temporal.
"""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, TypeAdapter

from workflows.contracts.base import Contract

STDIN, STDOUT, STDERR = 0, 1, 2
"""The streams, by the first byte of a binary message; those of a port are the first two."""
MOST_PIECE_BYTES = 64 << 10
"""The most bytes of a stream in one message."""
MOST_MESSAGE_BYTES = 1 << 20
MOST_ARGUMENTS = 1000
MOST_COMMAND_CHARACTERS = 64 << 10
MOST_LOG_LINES = 10_000
MOST_LOG_BYTES = 4 << 20
"""The most of a device's log that is read before what it says from now on."""


class SessionKind(StrEnum):
    """What a session is: a command, SSH over one stream, or a connection to a port of the run."""

    COMMAND = "command"
    SSH = "ssh"
    PORT = "port"


Side = Annotated[int, Field(ge=1, le=10_000)]
Port = Annotated[int, Field(ge=1, le=65_535)]


class Terminal(Contract):
    """The terminal of a person, whose size a command shows its output for."""

    rows: Side = 24
    columns: Side = 80
    type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,64}$")] = "xterm"


class SessionRequest(Contract):
    """What is asked of a run.

    arguments: of a command, by which it is started; none: a shell.
    terminal: of a command; None: pipes.
    port: of the run, on its node's loopback.
    """

    kind: SessionKind
    arguments: tuple[Annotated[str, Field(max_length=MOST_COMMAND_CHARACTERS)], ...] = Field(
        default=(), max_length=MOST_ARGUMENTS
    )
    terminal: Terminal | None = None
    port: Port | None = None


class LogPlace(Contract):
    """A place in the log of a device. As a message: the next bytes begin there."""

    type: Literal["log-place"] = "log-place"
    number: Annotated[int, Field(ge=0, le=1 << 62)]
    """The number of the assignment whose command says it."""
    offset: Annotated[int, Field(ge=0, le=1 << 62)]
    """Counted in bytes from the start of the command."""


class DeviceLogRequest(Contract):
    """What is asked of a device: the log of what it runs now.

    lines: how many of its last lines at most. follow: whether to go on as it grows, until the
    command ends. after: where a reader was broken off; `lines` then says nothing.
    """

    kind: Literal["device-log"] = "device-log"
    lines: Annotated[int, Field(ge=0, le=MOST_LOG_LINES)]
    follow: bool = False
    after: LogPlace | None = None


class Opened(Contract):
    """The session has begun on its node."""

    type: Literal["opened"] = "opened"


class Refused(Contract):
    """The session did not begin, or was broken off. `code` is stable."""

    type: Literal["refused"] = "refused"
    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    detail: Annotated[str, Field(max_length=3000)] = ""


class Exited(Contract):
    """The command has ended, or its run has."""

    type: Literal["exited"] = "exited"
    exit_code: int | None = None
    signal: int | None = None
    reason: Annotated[str, Field(max_length=64)] = "exited"


class Eof(Contract):
    """The sender says no more bytes of its stream; it still listens."""

    type: Literal["eof"] = "eof"


class Resize(Contract):
    """The person's terminal has another size."""

    type: Literal["resize"] = "resize"
    rows: Side
    columns: Side


class Signal(Contract):
    """A signal for the command and its process group."""

    type: Literal["signal"] = "signal"
    number: Annotated[int, Field(ge=1, le=64)]


class Dial(Contract):
    """On a trunk: open a connection for this session, with this token, and serve the request."""

    type: Literal["dial"] = "dial"
    session_id: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    token: Annotated[str, Field(min_length=20, max_length=200, repr=False)]
    request: SessionRequest | DeviceLogRequest


Message: TypeAlias = Opened | Refused | Exited | Eof | Resize | Signal | LogPlace
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Discriminator("type")])


class TrunkOrder(Contract):
    """What is sealed for the site: where it connects to, and what proves there that it may."""

    url: Annotated[str, Field(max_length=2000)]
    token: Annotated[str, Field(min_length=20, max_length=200, repr=False)]


def read_message(text: str) -> Message:
    """The message of a session. Raises: ValueError, for anything else."""
    return _MESSAGE.validate_json(text)


def read_dial(text: str) -> Dial:
    """The message of a trunk. Raises: ValueError, for anything else."""
    return Dial.model_validate_json(text)


def read_order(content: bytes) -> TrunkOrder:
    """The order of a trunk, as it was sealed. Raises: ValueError, for anything else."""
    return TrunkOrder.model_validate_json(content)
