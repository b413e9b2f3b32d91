"""`baseload reservation`: hostnames and ports of a region, each for one job at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find, find_id
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import moment_text, pick

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name")]


@command(app)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique in the region")],
    region: Annotated[str, typer.Option(help="id or name; it needs an active node")],
    hostname: Annotated[
        str, typer.Option(help="one label, such as lab: machines there find lab.local")
    ],
    port: Annotated[int, typer.Option(help="at which the job listens, 1024 to 65535")],
) -> None:
    """Reserve a hostname and a port in a region, for the job that names the reservation."""
    body: Document = {
        "region_id": find_id(session, "regions", region),
        "name": name,
        "hostname": hostname,
        "port": port,
    }
    _show_result(session, session.post("/v1/reservations", body))


@command(app)
def ls(session: Session) -> None:
    """List reservations, each with the job that holds it; `list` is the same."""
    reservations = session.items("/v1/reservations")
    if session.screen.as_json:
        session.screen.json({"items": reservations})
        return
    session.screen.table(
        ("id", "name", "hostname", "port", "region", "job", "node"),
        [
            (*pick(each, "id", "name", "published_name", "port", "region_id"), *_holder(each))
            for each in reservations
        ],
    )


@command(app)
def show(session: Session, reservation: Reference) -> None:
    """Show a reservation, the job that holds it, and what nodes said of its hostname."""
    reservation_id = find_id(session, "reservations", reservation)
    found = session.get(f"/v1/reservations/{reservation_id}")
    if session.screen.as_json:
        session.screen.json(found)
        return
    job, node = _holder(found)
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name")),
            ("hostname", found.get("published_name")),
            ("port", found.get("port")),
            ("region", found.get("region_id")),
            ("held by job", job),
            ("on node", node),
            ("created", moment_text(found.get("created_at"))),
        ]
    )
    if events := found.get("events"):
        session.screen.table(
            ("at", "hostname", "job", "message"),
            [
                (moment_text(each["at"]), *pick(each, "state", "job_id", "message"))
                for each in events
            ],
        )


@command(app, takes_yes=True)
def rm(session: Session, reservation: Reference) -> None:
    """Remove a reservation that no open job names; `remove` is the same."""
    path = f"/v1/reservations/{find(session, 'reservations', reservation)['id']}"
    _show_result(session, session.delete(path), now="removed")


command(app, "list")(ls)
command(app, "remove", takes_yes=True)(rm)


def _holder(reservation: Document) -> tuple[str | None, str | None]:
    """The job that holds it, and that job's node, by their names."""
    holder = reservation.get("holder") or {}
    return holder.get("job_name"), holder.get("node_name")


def _show_result(session: Session, reservation: Document, now: str = "") -> None:
    """One in a line. now: what has happened to it."""
    if session.screen.as_json:
        session.screen.json(reservation)
    else:
        session.screen.result(
            f"{reservation['id']}  {reservation['name']}  "
            f"{reservation['published_name']}:{reservation['port']}  {now}".rstrip()
        )
