"""`baseload logs`: the log of a job, stored or as it grows."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TextIO

import typer

from baseload.commands.app import new_app
from baseload.commands.durations import seconds_of
from baseload.commands.following import follow_job, log_streams, say_end, workers_of
from baseload.commands.jobs import Reference
from baseload.commands.lookup import find_newest_job
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import printable
from baseload.errors import ApiError

app = new_app()


class LogPrinter:
    """The printer of the logs of a job's workers; with several, each line names its worker.

    is_own: whether the job is of the caller's account. Only then, and only where no terminal shows
    it, the text is as it is. Else control characters are escapes, and a carriage return ends a
    line.
    """

    def __init__(self, worker_count: int, stream: TextIO, *, is_own: bool) -> None:
        self._names_workers = worker_count > 1
        self._stream = stream
        self._is_plain = is_own and not stream.isatty()
        self._begun: dict[int, str] = {}
        self._returned: set[int] = set()
        """The workers whose last piece ended in a carriage return, which may be half an end."""

    def show(self, piece: Document) -> None:
        """Print a piece as the API sends it."""
        self.piece(piece["worker"], piece["text"])

    def piece(self, worker: int, text: str) -> None:
        """Print a piece of a log; of several workers only whole lines, so that they do not mix."""
        if not self._is_plain:
            text = self._visible(worker, text)
        if not self._names_workers:
            self._stream.write(text)
            self._stream.flush()
            return
        whole, newline, rest = (self._begun.get(worker, "") + text).rpartition("\n")
        self._begun[worker] = rest
        if newline:
            self._lines(worker, whole)

    def _visible(self, worker: int, text: str) -> str:
        if worker in self._returned:
            text = f"\r{text}"
            self._returned.discard(worker)
        if text.endswith("\r"):
            text = text[:-1]
            self._returned.add(worker)
        return printable(text.replace("\r\n", "\n").replace("\r", "\n"))

    def end(self) -> None:
        """Print the lines that have started and not ended."""
        for worker, text in sorted(self._begun.items()):
            if text:
                self._lines(worker, text)
        self._begun.clear()

    def _lines(self, worker: int, text: str) -> None:
        for line in text.split("\n"):
            self._stream.write(f"[{worker}] {line}\n")
        self._stream.flush()


@command(app)
def logs(
    session: Session,
    job: Reference,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="until the job ends")] = False,
    worker: Annotated[int | None, typer.Option(help="default: all of them")] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="only the last lines of each worker")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="AGE", help="only what is younger: 90, 10m, 1h30m")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="the time (UTC) in front of each line")
    ] = False,
) -> None:
    """Print what a job printed; with --json a line for each piece: worker, offset, text.

    With --follow, its events and why it waits come on stderr (with --tail and --since from now
    on), and the exit code is 0 only for a job that has finished. Times are those at which
    the platform has stored a line, to about a second (ten in an object store).
    """
    part = {
        "tail": tail,
        "since": None if since is None else _instant(since),
        "timestamps": timestamps or None,
    }
    found = find_newest_job(session, job)
    workers = [worker] if worker is not None else workers_of(found)
    printer = LogPrinter(len(workers), sys.stdout, is_own=_is_own(session, found))
    if follow:
        streams = list(log_streams(found, workers, part))
        is_partial = tail is not None or since is not None
        show = session.screen.json_line if session.screen.as_json else printer.show
        ended = follow_job(session, found, streams, show, from_now=is_partial)
        printer.end()
        say_end(session, ended)
        return
    last = workers[0]
    for piece in _stored(session, found, workers, part):
        if session.screen.as_json:
            session.screen.json_line(piece)
            continue
        if piece["worker"] != last:
            printer.end()
        last = piece["worker"]
        printer.show(piece)
    printer.end()


def _is_own(session: Session, job: Document) -> bool:
    """Whether the job is of the caller's account, or was submitted by it; False if not known."""
    if session.screen.as_json or sys.stdout.isatty():
        return False  # Nothing depends on it.
    try:
        account_id = session.get("/v1/account")["id"]
    except ApiError:
        return False
    return account_id in (job.get("account_id"), job.get("creator_account_id"))


def _instant(age: str) -> str:
    """The instant of an age, as the API reads it. Raises: MistakeError, for another text."""
    return (datetime.now(UTC) - timedelta(seconds=seconds_of(age, "--since"))).isoformat()


def _stored(
    session: Session, job: Document, workers: list[int], part: Mapping[str, Any]
) -> Iterator[Document]:
    """The pieces of the stored logs; of a part of them, the offsets count from its first byte."""
    for worker in workers:
        chunks = session.chunks(f"/v1/jobs/{job['id']}/logs", worker=worker, **part)
        yield from stored_pieces(chunks, worker)


def stored_pieces(chunks: Iterable[bytes], worker: int) -> Iterator[Document]:
    """The pieces of one log, as a stream of it has them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    offset = taken = 0
    for chunk in chunks:
        taken += len(chunk)
        text = decoder.decode(chunk)
        pending = len(decoder.getstate()[0])
        if text:
            yield {"worker": worker, "offset": offset, "text": text}
        offset = taken - pending
    rest = decoder.decode(b"", final=True)
    if rest:
        yield {"worker": worker, "offset": offset, "text": rest}
