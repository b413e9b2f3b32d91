"""`baseload output`: fetches a job's output to this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.jobs import Reference
from baseload.commands.lookup import find_newest_job
from baseload.commands.session import NegativeError, Session, command
from baseload.commands.terminal import bytes_text, counted
from baseload.commands.waiting import spinner
from baseload.packing import OUTPUT_MARK
from baseload.unpacking import UnpackingError, unpack_from_file

app = new_app()


@command(app)
def output(
    session: Session,
    job: Reference,
    to: Annotated[Path | None, typer.Option(help="folder; default: the job's id")] = None,
    worker: Annotated[int | None, typer.Option(help="default: all of them")] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="all files that a notebook or endpoint has kept")
    ] = False,
) -> None:
    """Fetch a job's output folder, or all files of its newest snapshot, and unpack it."""
    from baseload.calls import Call

    found = find_newest_job(session, job)
    folder = to or Path(str(found["id"]))
    is_new = not folder.exists() or not any(folder.iterdir())
    query = {"worker": worker, "snapshot": snapshot or None}
    call = Call("GET", f"/v1/jobs/{found['id']}/output", query)
    with unpack_from_file(folder) as archive:
        with spinner(session) as show:
            show(f"{'snapshot' if snapshot else 'output'} of {found['name']}: on its way")
            session.transport.download(call, archive.path)
        try:
            unpacked = archive.unpack()
        except UnpackingError as cause:
            raise NegativeError(str(cause)) from cause
    if is_new:  # A folder that had files of its own may be code.
        (folder / OUTPUT_MARK).write_text(f"the output of {found['id']}, which submit leaves out\n")
    for name in unpacked.left_out:
        session.screen.say(f"left out: {name}, a link out of the folder or a device")
    if session.screen.as_json:
        names = {"files": list(unpacked.files), "left_out": list(unpacked.left_out)}
        session.screen.json({"job_id": found["id"], "folder": str(folder), **names})
        return
    size = bytes_text(unpacked.content_bytes)
    if not unpacked.files:
        session.screen.say(f"{found['name']}: its command has left no file in $BASELOAD_OUTPUT")
    session.screen.result(f"{folder}: {counted(len(unpacked.files), 'file')}, {size}")
