"""Machines that cost money: listed, and ended for certain."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.screen import credits_text, moment_text, pick
from baseload.commands.session import Document, MistakeError, NegativeError, Session, command
from baseload.commands.waiting import WAIT_LIMIT_S, spinner, state_line
from baseload.errors import BaseloadError

app = new_app()
LOOK_EVERY_S = 2.0


@command(app)
def leases(
    session: Session,
    ended: Annotated[bool, typer.Option("--ended", help="those that are over, too")] = False,
) -> None:
    """List the machines that cost money, and what each has cost."""
    found = session.items("/v1/leases", live=None if ended else True)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [
            *pick(lease, "id", "status", "provider_kind"),
            *_what_and_where(lease),
            lease["holder_id"],
            _price(lease),
            moment_text(lease["began_at"]),
            credits_text(lease["cost_microcredits"]),
            lease.get("status_reason"),
        ]
        for lease in found
    ]
    columns = ("id", "status", "provider", "type", "place", "for", "an hour", "since", "cost")
    session.screen.table((*columns, "reason"), rows)


@command(app)
def kill(
    session: Session,
    lease: Annotated[list[str] | None, typer.Argument(help="ids of leases")] = None,
    every: Annotated[bool, typer.Option("--all", help="every machine that costs money")] = False,
    provider: Annotated[
        str | None, typer.Option(help="with --all: only of this kind or id")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait at most")] = WAIT_LIMIT_S,
) -> None:
    """End machines whatever they do, and wait until their providers say that they are gone."""
    if bool(lease) == every:
        raise MistakeError("asked either ids of leases or --all")
    chosen = [session.get(f"/v1/leases/{each}") for each in lease or ()]
    if every:
        chosen = _live(session, provider)
    if chosen and not yes and not typer.confirm(f"End {len(chosen)} machines?", err=True):
        raise MistakeError("nothing was ended")
    _ask_all(session, [str(each["id"]) for each in chosen])
    gone = _until_gone(session, [str(each["id"]) for each in chosen], timeout)
    if every and (left := _live(session, provider)):
        names = ", ".join(str(each["id"]) for each in left)
        raise NegativeError(f"{len(left)} have come meanwhile and are there: {names}")
    if session.screen.as_json:
        session.screen.json({"items": gone})
        return
    for each in gone:
        session.screen.result(f"{each['id']}  {state_line(each)}")
    session.screen.result(f"{len(gone)} machines are gone")


def _ask_all(session: Session, ids: list[str]) -> None:
    """One that cannot be asked for does not save the others. Raises: the first failure."""
    failures = []
    for lease_id in ids:
        try:
            session.delete(f"/v1/leases/{lease_id}")
        except BaseloadError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _live(session: Session, provider: str | None) -> list[Document]:
    found = session.items("/v1/leases", live=True)
    if provider is None:
        return found
    return [each for each in found if provider in (each["provider_kind"], each["provider_id"])]


def _until_gone(session: Session, ids: list[str], limit_s: float) -> list[Document]:
    """Raises: NegativeError, naming those that still cost money after the limit."""
    deadline = time.monotonic() + limit_s
    with spinner(session) as turn:
        while True:
            found = [session.get(f"/v1/leases/{each}") for each in ids]
            left = [each for each in found if each["status"] not in ("released", "refused")]
            if not left:
                return found
            if time.monotonic() > deadline:
                told = "\n  ".join(f"{each['id']}  {state_line(each)}" for each in left)
                raise NegativeError(f"still there after {limit_s:g} s:\n  {told}")
            turn(f"{len(left)} of {len(ids)} machines are still there")
            time.sleep(LOOK_EVERY_S)


def _what_and_where(lease: Document) -> list[str | None]:
    offer = lease["offer"] or {}
    kind = offer.get("machine_type")
    return [f"{kind} (spot)" if offer.get("spot") else kind, offer.get("place")]


def _price(lease: Document) -> str:
    about = "about " if lease["price_is_estimate"] else ""
    return about + credits_text(lease["microcredits_per_hour"])
