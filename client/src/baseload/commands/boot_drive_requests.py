"""`baseload boot-drive`: drives from which machines start and join a region."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import moment_text, pick

app = new_app()
PATH = "/v1/boot-drive-requests"
Reference = Annotated[str, typer.Argument(metavar="REQUEST", help="id, as bdr-…")]


@command(app)
def request(
    session: Session,
    region: Annotated[str, typer.Option(help="id or name, of machines you own")],
    ship_to: Annotated[
        list[str],
        typer.Option(help="a line of the postal address; repeat it, name first, country last"),
    ],
    count: Annotated[int, typer.Option(help="one for each machine, 1 to 20")] = 1,
) -> None:
    """Ask for drives from which machines of a region start; an administrator decides."""
    body: Document = {
        "region_id": find_id(session, "regions", region),
        "count": count,
        "ship_to": ship_to,
    }
    _show_result(session, session.post(PATH, body))


@command(app)
def ls(
    session: Session,
    region: Annotated[str | None, typer.Option(help="id or name")] = None,
    status: Annotated[
        str | None,
        typer.Option(help="requested, approved, refused, withdrawn, shipped or received"),
    ] = None,
    all_accounts: Annotated[
        bool, typer.Option("--all-accounts", help="those of everybody (administrators)")
    ] = False,
) -> None:
    """List boot-drive requests; `list` is the same."""
    found = session.items(
        PATH,
        region_id=None if region is None else find_id(session, "regions", region),
        status=status,
        all_accounts="true" if all_accounts else None,
    )
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    session.screen.table(
        ("id", "status", "drives", "region", "account", "since"),
        [
            (
                *pick(each, "id", "status", "count", "region_id", "account_id"),
                moment_text(each.get("updated_at")),
            )
            for each in found
        ],
    )


@command(app)
def show(session: Session, request_id: Reference) -> None:
    """Show a request: its status, where the drives go, and what has happened."""
    found = session.get(_path(request_id))
    events = session.items(f"{_path(request_id)}/events")
    if session.screen.as_json:
        session.screen.json({**found, "events": events})
        return
    address = found.get("ship_to")
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "status")),
            ("reason", found.get("status_reason")),
            ("drives", found.get("count")),
            ("region", found.get("region_id")),
            ("account", found.get("account_id")),
            ("ship to", "removed" if address is None else ", ".join(address)),
            ("carrier", found.get("carrier")),
            ("tracking", found.get("tracking")),
            ("requested", moment_text(found.get("created_at"))),
        ]
    )
    session.screen.table(
        ("at", "event", "message"),
        [(moment_text(each["at"]), *pick(each, "type", "message")) for each in reversed(events)],
    )


@command(app)
def approve(session: Session, request_id: Reference) -> None:
    """Promise the drives of a request (administrators)."""
    _show_result(session, session.post(_path(request_id, "approve")))


@command(app)
def refuse(
    session: Session,
    request_id: Reference,
    reason: Annotated[str, typer.Option(help="for the account to read")],
) -> None:
    """Refuse a request, with a reason (administrators)."""
    _show_result(session, session.post(_path(request_id, "refuse"), {"reason": reason}))


@command(app)
def ship(
    session: Session,
    request_id: Reference,
    carrier: Annotated[str | None, typer.Option(help="who carries the parcel")] = None,
    tracking: Annotated[str | None, typer.Option(help="the carrier's number of the parcel")] = None,
) -> None:
    """Say that approved drives are on their way (administrators)."""
    body = {"carrier": carrier, "tracking": tracking}
    _show_result(session, session.post(_path(request_id, "ship"), body))


@command(app)
def receive(session: Session, request_id: Reference) -> None:
    """Say that the drives have come."""
    _show_result(session, session.post(_path(request_id, "receive")))


@command(app)
def withdraw(session: Session, request_id: Reference) -> None:
    """Take a request back that nobody has decided."""
    _show_result(session, session.post(_path(request_id, "withdraw")))


command(app, "list")(ls)


def _path(request_id: str, verb: str = "") -> str:
    return f"{PATH}/{quote(request_id, safe='')}" + (f"/{verb}" if verb else "")


def _show_result(session: Session, found: Document) -> None:
    """One request in a line."""
    if session.screen.as_json:
        session.screen.json(found)
        return
    drives = "1 drive" if found["count"] == 1 else f"{found['count']} drives"
    session.screen.result(f"{found['id']}  {drives}  {found['region_id']}  {found['status']}")
