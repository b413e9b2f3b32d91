"""`baseload provider`: sources of machines."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.finding import find, find_id
from baseload.commands.screen import credits_text, moment_text, pick
from baseload.commands.session import Session, command
from baseload.commands.waiting import Goal, wait_for

app = new_app()


@command(app)
def enable(
    session: Session,
    kind: Annotated[str, typer.Argument(help="physical, gcp, runpod, vastai, colab or local")],
    name: Annotated[str | None, typer.Option(help="default: its kind")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until it is ready")] = False,
) -> None:
    """Enable a provider."""
    provider = session.post("/v1/providers", {"kind": kind} | ({"name": name} if name else {}))
    if wait:
        provider = wait_for(session, "providers", provider, Goal(frozenset({"ready"})))
    if session.screen.as_json:
        session.screen.json(provider)
    else:
        session.screen.result(f"{provider['id']}  {provider['name']}  {provider['status']}")


@command(app)
def ls(session: Session) -> None:
    """List providers."""
    providers = session.items("/v1/providers")
    if session.screen.as_json:
        session.screen.json({"items": providers})
        return
    names = ("id", "name", "kind", "status", "status_reason")
    session.screen.table(
        ("id", "name", "kind", "status", "reason"), [pick(each, *names) for each in providers]
    )


@command(app)
def show(session: Session, provider: Annotated[str, typer.Argument(help="id or name")]) -> None:
    """Show a provider and its checks."""
    found = find(session, "providers", provider)
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "kind", "status")),
            ("reason", found.get("status_reason")),
            ("payment mode", found.get("payment_mode")),
            ("preferred until", _preferred(found.get("preferred_credits_microcredits"))),
            ("created", moment_text(found.get("created_at"))),
        ]
    )
    for check in found.get("checks") or ():
        session.screen.result(f"  {check['name']}: {check['status']}  {check['detail']}")


@command(app)
def rm(
    session: Session,
    provider: Annotated[str, typer.Argument(help="id or name")],
    force: Annotated[bool, typer.Option("--force", help="with its regions")] = False,
) -> None:
    """Remove a provider."""
    path = f"/v1/providers/{find_id(session, 'providers', provider)}"
    removed = session.delete(path, force=force or None)
    if session.screen.as_json:
        session.screen.json(removed)
    else:
        session.screen.result(f"{provider}: {removed.get('status', 'removed')}")


def _preferred(microcredits: int | None) -> str | None:
    return None if microcredits is None else f"{credits_text(microcredits)} credits are spent"
