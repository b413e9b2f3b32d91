"""`baseload reconcile`: the machines that providers list, compared with the leases now."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.confirmation import Yes, confirm
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, NegativeError, Session, command
from baseload.commands.terminal import counted, credits_text

app = new_app()


@command(app)
def reconcile(
    session: Session,
    provider: Annotated[str | None, typer.Option(help="id or name; default: all")] = None,
    end: Annotated[
        bool, typer.Option("--end", help="terminate the machines that no lease names, too")
    ] = False,
    yes: Yes = False,
) -> None:
    """Compare what providers list with the leases now (administrators). 1 while something is left.

    Machines whose lease has ended are terminated. Those that no lease names are only listed,
    because they may do work; --end terminates them.
    """
    provider_id = find_id(session, "providers", provider) if provider else None
    if end:
        confirm("End every machine with our label that no lease names?", yes=yes)
    found = session.post("/v1/reconcile", {"provider_id": provider_id, "end": end})
    if session.screen.as_json:
        session.screen.json(found)
    else:
        for each in found["items"]:
            _print(session, each, end=end)
    failures = [_name(each) for each in found["items"] if each["failure"]]
    if failures:
        raise NegativeError(f"could not be asked: {', '.join(failures)}")
    left = sum(len(each["unknown"]) for each in found["items"])
    if left and not end:
        raise NegativeError(f"{counted(left, 'machine')} without a lease; --end terminates them")


def _print(session: Session, found: Document, *, end: bool) -> None:
    name = _name(found)
    if found["failure"]:
        session.screen.result(f"{name}  cannot be asked: {found['failure']}")
        return
    wrong = found["ending"] or found["unknown"] or found["missing"]
    as_leases = "" if wrong else ", as the leases say"
    session.screen.result(f"{name}  {counted(found['machine_count'], 'machine')}{as_leases}")
    for each in found["ending"]:
        session.screen.result(f"  {_machine(each)}: its lease has ended; is being terminated")
    for each in found["unknown"]:
        fate = "is being terminated" if end else "is left as it is"
        session.screen.result(f"  {_machine(each)}: no lease names it; {fate}")
    for each in found["missing"]:
        session.screen.result(f"  {each}: its machine is not listed; looks for it now")


def _name(found: Document) -> str:
    return f"{found['name']} ({found['provider_id']})"


def _machine(found: Document) -> str:
    price = found["microcredits_per_hour"]
    costs = "" if price is None else f", {credits_text(price)} credits/h"
    place = f" in {found['zone']}" if found["zone"] else ""
    return f"{found['name']}{place} ({found['state']}{costs})"
