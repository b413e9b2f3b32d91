"""The commands for machines that cost money: list them, and terminate them for certain."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.confirmation import Yes, confirm
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, MistakeError, NegativeError, Session, command
from baseload.commands.terminal import counted, credits_text, moment_text, pick
from baseload.commands.termination import Ending, Listing, kind_or_id, listings
from baseload.commands.waiting import WAIT_LIMIT_S, spinner, state_line
from baseload.errors import BaseloadError

app = new_app()
POLL_INTERVAL_S = 2.0
NEWCOMERS_HINT = (
    "New machines have come meanwhile, for jobs, nodes or regions that still need them. Cancel or "
    "remove these, and run the command again."
)


@command(app)
def leases(
    session: Session,
    ended: Annotated[bool, typer.Option("--ended", help="those that are over, too")] = False,
    listed: Annotated[
        bool, typer.Option("--listed", help="as the providers list them, held by a lease or not")
    ] = False,
) -> None:
    """List the machines that cost money, and what each has cost."""
    if listed:
        _show_listed(session)
        return
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
    columns = ("id", "status", "provider", "type", "zone", "for", "an hour", "since", "cost")
    spare = ("since", "zone", "type", "provider", "for", "reason")
    print_list(session.screen, (*columns, "reason"), rows, spare)


@command(app)
def kill(
    session: Session,
    lease: Annotated[list[str] | None, typer.Argument(help="ids of leases")] = None,
    every: Annotated[bool, typer.Option("--all", help="every machine that costs money")] = False,
    provider: Annotated[
        str | None, typer.Option(help="with --all: only of this kind, name or id")
    ] = None,
    yes: Yes = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait at most")] = WAIT_LIMIT_S,
) -> None:
    """Terminate machines, whatever runs there, and wait until their providers say they are gone."""
    if bool(lease) == every:
        raise MistakeError("asked either ids of leases or --all")
    if provider is not None and not every:
        raise MistakeError("asked --provider without --all")
    ending = Ending(session, kind_or_id(session, provider) if provider else None) if every else None
    count = ending.count() if ending else len(lease or ())
    if count:
        confirm(f"End {counted(count, 'machine')}?", yes=yes)
    if ending is None:
        _ask_all(session, lease or [])
        _show_gone(session, _until_gone(session, lease or [], timeout), [], [])
        return
    _until_nothing_is_left(session, ending, timeout)
    gone = [session.get(f"/v1/leases/{each}") for each in ending.leases]
    _show_gone(session, gone, ending.orphans, ending.market)


def _show_gone(
    session: Session, gone: list[Document], orphans: list[str], market: list[Listing]
) -> None:
    if session.screen.as_json:
        providers = [each.provider["id"] for each in market]
        found = {"items": gone, "unknown": orphans, "providers_that_list_nothing": providers}
        session.screen.json(found)
        return
    for each in gone:
        session.screen.result(f"{each['id']}  {state_line(each)}")
    for name in orphans:
        session.screen.result(f"{name}  gone, no lease named it")
    for listing in market:
        session.screen.result(f"{listing.name} lists no machine of ours")
    session.screen.result(_are(len(gone) + len(orphans), "gone"))


def _until_nothing_is_left(session: Session, ending: Ending, limit_s: float) -> None:
    """Raises: NegativeError, with all machines that are still there, or could not be asked for."""
    deadline = time.monotonic() + limit_s
    with spinner(session) as show:
        while left := ending.poll():
            if time.monotonic() > deadline:
                hint = f"\n{NEWCOMERS_HINT}" if ending.newcomers else ""
                raise NegativeError("not all is gone:\n  " + "\n  ".join(left) + hint)
            show(_are(len(left), "still there"))
            time.sleep(POLL_INTERVAL_S)


def _show_listed(session: Session) -> None:
    market = listings(session, None)
    if session.screen.as_json:
        items = [
            {"provider_id": listing.provider["id"], **each}
            for listing in market
            for each in listing.machines
        ]
        session.screen.json({"items": items})
    else:
        rows = [
            [
                listing.name,
                *pick(each, "name", "zone", "state"),
                credits_text(each["microcredits_per_hour"]),
                moment_text(each["began_at"]),
                each["lease_id"] if each["held"] else "nobody",
            ]
            for listing in market
            for each in listing.machines
        ]
        columns = ("provider", "machine", "zone", "state", "an hour", "since", "held by")
        session.screen.table(columns, rows)
    failures = [each.why for each in market if each.failure]
    if failures:
        raise NegativeError("\n".join(failures))


def _ask_all(session: Session, ids: list[str]) -> None:
    """Release all leases, also after a failure. Raises: the first failure."""
    failures = []
    for lease_id in ids:
        try:
            session.delete(f"/v1/leases/{lease_id}")
        except BaseloadError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _until_gone(session: Session, ids: list[str], limit_s: float) -> list[Document]:
    """Raises: NegativeError, naming those that still cost money after the limit."""
    deadline = time.monotonic() + limit_s
    with spinner(session) as show:
        while True:
            found = [session.get(f"/v1/leases/{each}") for each in ids]
            left = [each for each in found if each["status"] not in ("released", "refused")]
            if not left:
                return found
            if time.monotonic() > deadline:
                lines = "\n  ".join(f"{each['id']}  {state_line(each)}" for each in left)
                raise NegativeError(f"still there after {limit_s:g} s:\n  {lines}")
            show(f"{_are(len(left), 'still there')}, of {len(ids)}")
            time.sleep(POLL_INTERVAL_S)


def _what_and_where(lease: Document) -> list[str | None]:
    offer = lease["offer"] or {}
    kind = offer.get("machine_type")
    return [f"{kind} (spot)" if offer.get("spot") else kind, offer.get("zone")]


def _are(count: int, what: str) -> str:
    return f"{counted(count, 'machine')} {'is' if count == 1 else 'are'} {what}"


def _price(lease: Document) -> str:
    about = "about " if lease["price_is_estimate"] else ""
    return about + credits_text(lease["microcredits_per_hour"])
