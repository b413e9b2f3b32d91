"""Sending a folder in parts, resumed where it broke off, and fetching a content as a tar."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baseload.commands.session import Document, NegativeError, Session
from baseload.commands.terminal import console_of, counted
from baseload.content_parts import FolderTar
from baseload.packing import PackingError


def find_upload(session: Session, plural: str, body: Document) -> Document | None:
    """The artifact of this name and project whose upload was interrupted; None: there is none."""
    if body["source"] != {"type": "upload"}:
        return None
    for found in session.items(f"/v1/{plural}", project_id=body.get("project_id")):
        is_open = found["status"] in ("new", "transferring")
        is_upload = found["source"] == {"type": "upload", "part_count": None}
        if found["name"] == body["name"] and is_open and is_upload:
            session.screen.say(f"{found['name']}: goes on with the upload of {found['id']}")
            return found
    return None


def send(session: Session, plural: str, created: Document, tar: FolderTar) -> None:
    """Send the parts that are not stored yet, and say that all are there.

    Raises: NegativeError, when a file changes while it is sent.
    """
    from baseload.calls import Call

    path = f"/v1/{plural}/{created['id']}"
    if tar.left_out:
        names = ", ".join(each.name for each in tar.left_out[:5])
        session.screen.say(f"left out: {counted(len(tar.left_out), 'file')}: {names}")
    stored = session.get(f"{path}/parts")
    there = {each["index"]: each["sha256"] for each in stored["items"]}
    count = 0
    try:
        with _bar(session, f"{created['name']}: sent", tar.size_bytes) as advance:
            for part in tar.parts(stored["part_bytes"]):
                sha256 = hashlib.sha256(part).hexdigest()
                if there.get(count) != sha256:
                    query = {"sha256": sha256}
                    call = Call("PUT", f"{path}/parts/{count}", query, content=part)
                    session.transport.json(call)
                advance(len(part))
                count += 1
    except PackingError as cause:
        raise NegativeError(str(cause)) from cause
    session.post(f"{path}/complete", {"part_count": count})


def fetch(session: Session, found: Document, chunks: Iterator[bytes], target: Path) -> None:
    """Write the content to a file, which appears whole or not at all.

    Raises: NegativeError, when less has come than there is.
    """
    part = target.with_name(f".{target.name}.part")
    size = 0
    try:
        with (
            part.open("wb") as file,
            _bar(session, f"{found['name']}: fetched", found["size_bytes"]) as advance,
        ):
            for chunk in chunks:
                file.write(chunk)
                size += len(chunk)
                advance(len(chunk))
        if size != found["size_bytes"]:
            raise NegativeError(f"{found['name']}: got {size} of {found['size_bytes']} bytes")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _bar(session: Session, what: str, total: int) -> Iterator[Callable[[int], Any]]:
    """A progress bar on a terminal; yields the function that moves it by so many bytes."""
    if session.screen.as_json or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console_of(sys.stderr)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
