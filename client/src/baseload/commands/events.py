"""`baseload events`: the events of one resource, or of all."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import PREFIXES, UnknownNameError, find_id, find_newest_job
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.stream_merge import Feed, Stream
from baseload.commands.terminal import moment_text

app = new_app()
NOUNS = ("jobs", "nodes", "regions", "providers")
DATA_NOUNS = ("datasets", "models", "checkpoints", "volumes", "datastores")
"""Those of data: by name only where none of the others has it."""
EDGE_NOUNS = ("devices", "device-deployments")
"""Those of the edge: likewise, after those of data."""
NAMELESS = {"lea": "leases", "bdr": "boot-drive-requests"}
"""Those that are found by id alone, by the prefix of their ids."""


@command(app)
def events(
    session: Session,
    resource: Annotated[
        str | None, typer.Argument(help="a job, node, region, dataset, device, bdr-…; default: all")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="as they happen")] = False,
    limit: Annotated[int, typer.Option(help="how many of the newest")] = 200,
) -> None:
    """Show events, oldest first; with --json one event a line."""
    path = "/v1/events" if resource is None else f"{_path_of(session, resource)}/events"
    known = session.items(path, limit)[::-1]
    _show(session, known, names_resource=resource is None)
    if not follow:
        return
    feed = Feed(session.transport)
    newest = str(known[-1]["position"]) if known else "0"
    feed.add(Stream("events", path, {"follow": True}, newest))
    for arrival in feed.arrivals():
        if arrival is not None and arrival.event is not None:
            _show(session, [arrival.event.json()], names_resource=resource is None)


def _show(session: Session, found: list[Document], *, names_resource: bool) -> None:
    for event in found:
        if session.screen.as_json:
            session.screen.json_line(event)
            continue
        who = f"{event['resource_id']}  " if names_resource else ""
        at = moment_text(event["at"])
        session.screen.result(f"{at}  {who}{event['type']:<26} {event['message']}")


def _path_of(session: Session, reference: str) -> str:
    """The path of the resource with this id, or of the only resource with this name: of several
    jobs the newest."""
    nameless = re.fullmatch(r"([a-z]{3})-[0-9a-z]{26}", reference)
    if nameless and nameless[1] in NAMELESS:
        return f"/v1/{NAMELESS[nameless[1]]}/{reference}"
    for noun in (*NOUNS, *DATA_NOUNS, *EDGE_NOUNS):
        if reference.startswith(f"{PREFIXES[noun]}-"):
            with suppress(UnknownNameError):
                return f"/v1/{noun}/{find_id(session, noun, reference)}"
    kinds = (NOUNS, DATA_NOUNS, EDGE_NOUNS)
    found = next(filter(None, (_paths(session, nouns, reference) for nouns in kinds)), [])
    if not found:
        raise UnknownNameError(f"no resource has the id or the name {reference!r}")
    if len(found) > 1:
        raise MistakeError(f"{len(found)} resources have the name {reference!r}: give an id")
    return found[0]


def _paths(session: Session, nouns: tuple[str, ...], reference: str) -> list[str]:
    """The path of the resource of each noun that has this name."""
    found = []
    for noun in nouns:
        with suppress(UnknownNameError):
            if noun == "jobs":
                found.append(f"/v1/jobs/{find_newest_job(session, reference)['id']}")
            else:
                found.append(f"/v1/{noun}/{find_id(session, noun, reference)}")
    return found
