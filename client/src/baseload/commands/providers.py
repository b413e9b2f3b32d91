"""`baseload provider`: sources of machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.credit import microcredits
from baseload.commands.lookup import find, find_id
from baseload.commands.session import Document, MistakeError, NegativeError, Session, command
from baseload.commands.stream_merge import Deadline, Feed, Stream
from baseload.commands.terminal import credits_text, moment_text, pick
from baseload.commands.waiting import (
    POLL_INTERVAL_S,
    WAIT_LIMIT_S,
    Goal,
    event_line,
    newest_event,
    wait_for,
)

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name")]


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key", help="file of the key of a cloud or marketplace; - reads it from the terminal"
    ),
]
KeyReference = Annotated[
    str | None,
    typer.Option("--reference", help="where a key is: store://…, env://NAME or file:///path"),
]


@command(app)
def enable(
    session: Session,
    kind: Annotated[str, typer.Argument(help="physical, gcp, runpod, vastai, local or colab")],
    name: Annotated[str | None, typer.Option(help="default: its kind")] = None,
    key: KeyFile = None,
    reference: KeyReference = None,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="of a kind with terms; the refusal says them")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is ready")] = False,
) -> None:
    """Enable a provider. A key is never given as an argument: others could see it there."""
    body: dict[str, object] = {"kind": kind, **({"name": name} if name else {})}
    if accept_terms:
        body["accept_terms"] = True
    if (credentials := _credentials(key, reference)) is not None:
        body["credentials"] = credentials
    provider = session.post("/v1/providers", body)
    if wait:
        provider = wait_for(session, "providers", provider, Goal(frozenset({"ready"})))
    _show_result(session, provider)


@command(app)
def colab_bootstrap(
    session: Session,
    provider: Annotated[
        str | None, typer.Argument(help="id or name; default: the one of the kind colab")
    ] = None,
) -> None:
    """Print the cell by which a Colab notebook announces itself, once."""
    provider_id = find_id(session, "providers", provider) if provider else _only(session, "colab")
    found = session.get("/v1/colab/bootstrap", provider_id=provider_id)
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.say(
        "run this in a notebook, with your own ngrok token inserted; "
        f"it works once, until {moment_text(found['expires_at'])}"
    )
    session.screen.result(found["cell"])


@command(app)
def rotate(
    session: Session,
    provider: Reference,
    key: KeyFile = None,
    reference: KeyReference = None,
    wait: Annotated[bool, typer.Option("--wait", help="until it is ready with it")] = False,
) -> None:
    """Give a provider another key, of the same project of a cloud, and check it all again."""
    credentials = _credentials(key, reference)
    if credentials is None:
        raise MistakeError("asked a key: --key FILE or --reference WHERE")
    path = f"/v1/providers/{find_id(session, 'providers', provider)}"
    after = newest_event(session, path) if wait else None
    found = session.patch(path, {"credentials": credentials})
    _show_result(session, _checked(session, found, after) if wait else found)


@command(app)
def prefer(
    session: Session,
    provider: Reference,
    credits_given: Annotated[
        str | None,
        typer.Option("--credits", help="altogether, with what is used of those given before"),
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="prefer it no longer")] = False,
    waive: Annotated[
        bool | None,
        typer.Option("--waive-fee/--charge-fee", help="its usage fee; for administrators"),
    ] = None,
) -> None:
    """Use a cloud before all else until its machines have cost so many credits."""
    body: dict[str, object] = {} if waive is None else {"waive_usage_fee": waive}
    if end and credits_given is not None:
        raise MistakeError("asked both: --credits or --end")
    if end or credits_given is not None:
        amount = None if credits_given is None else microcredits(credits_given)
        body["preferred_credits_microcredits"] = amount
    if not body:
        raise MistakeError("asked what to change: --credits, --end, --waive-fee or --charge-fee")
    path = f"/v1/providers/{find_id(session, 'providers', provider)}"
    found = session.patch(path, body)
    if session.screen.as_json:
        session.screen.json(found)
        return
    shown = _preferred(found) or "not preferred"
    waived = ", without usage fee until then" if found["fee_waived"] else ""
    session.screen.result(f"{found['id']}  {found['name']}  {shown}{waived}")


@command(app)
def checks(
    session: Session,
    provider: Reference,
    again: Annotated[bool, typer.Option("--again", help="run them now, and wait")] = False,
) -> None:
    """Show what was checked, what was found and what to do. 1 when something failed."""
    found = find(session, "providers", provider)
    if again:
        path = f"/v1/providers/{found['id']}"
        after = newest_event(session, path)
        found = _checked(session, session.post(f"{path}/recheck"), after)
    if session.screen.as_json:
        session.screen.json({"status": found["status"], "items": found["checks"]})
    else:
        rows = [pick(each, "name", "status", "detail") for each in found["checks"]]
        session.screen.table(("check", "result", "found"), rows)
        for each in found["checks"]:
            if each["fix"]:
                session.screen.result(f"\n{each['name']}: {each['fix']}")
    if found["status"] == "failed":
        raise NegativeError(f"{found['name']} has failed: {found['status_reason']}")


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
def show(session: Session, provider: Reference) -> None:
    """Show a provider and its checks."""
    found = find(session, "providers", provider)
    if session.screen.as_json:
        session.screen.json(found)
        return
    credentials = found.get("credentials") or {}
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "kind", "status")),
            ("reason", found.get("status_reason")),
            ("project", credentials.get("project_id")),
            ("service account", credentials.get("service_account")),
            ("key", _key(credentials)),
            ("payment mode", found.get("payment_mode")),
            ("preferred until", _preferred(found)),
            ("notebook", _notebook(found.get("endpoint"))),
            ("created", moment_text(found.get("created_at"))),
        ]
    )
    for check in found.get("checks") or ():
        session.screen.result(f"  {check['name']}: {check['status']}  {check['detail']}")
    for resource in found.get("resources") or ():
        session.screen.result(f"  made: {resource['name']}  {resource['path']}")


Force = Annotated[bool, typer.Option("--force", help="with its regions, whatever is left then")]


@command(app, takes_yes=True)
def disable(
    session: Session,
    provider: Reference,
    force: Force = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is gone")] = False,
) -> None:
    """Remove a provider, and from its cloud exactly what was made for it."""
    found = find(session, "providers", provider)
    path = f"/v1/providers/{found['id']}"
    after = newest_event(session, path) if wait else None
    removed = session.delete(path, force=force or None)
    if wait and removed["status"] != "archived":
        removed = _until_removed(session, removed, after)
    _show_result(session, removed)


@command(app, takes_yes=True)
def rm(session: Session, provider: Reference, force: Force = False) -> None:
    """Remove a provider: as disable, without waiting."""
    path = f"/v1/providers/{find_id(session, 'providers', provider)}"
    _show_result(session, session.delete(path, force=force or None))


def _only(session: Session, kind: str) -> str:
    """The id of the one provider of a kind. Raises: MistakeError."""
    found = [
        str(each["id"])
        for each in session.items("/v1/providers")
        if each["kind"] == kind and each["status"] != "archived"
    ]
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise MistakeError(f"asked the one provider of the kind {kind}, found {listed}: name it")
    return found[0]


def _credentials(key: Path | None, reference: str | None) -> str | None:
    """The credentials to send: a key file's content, or a key's reference. Raises: MistakeError."""
    if key is not None and reference is not None:
        raise MistakeError("asked one of --key and --reference, found both")
    if key is None:
        return reference
    try:
        return sys.stdin.read() if str(key) == "-" else key.read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise MistakeError(f"{key}: cannot be read: {cause}") from cause


def _checked(session: Session, provider: Document, after: str | None) -> Document:
    """The provider once it has been checked again, ready or not."""
    return _until(session, provider, after, ("provider.ready", "provider.failed"))


def _until_removed(session: Session, provider: Document, after: str | None) -> Document:
    """The provider once it is removed. Raises: NegativeError, when the removal is refused."""
    ends = ("provider.archived", "provider.removal-refused")
    found = _until(session, provider, after, ends)
    if found["status"] != "archived":
        raise NegativeError(f"{found['name']} is {found['status']}: {found['status_reason']}")
    return found


def _until(
    session: Session, provider: Document, after: str | None, ends: tuple[str, ...]
) -> Document:
    """The provider after one of these events; every event until then is printed on stderr."""
    path = f"/v1/providers/{provider['id']}"
    feed, deadline = Feed(session.transport), Deadline(WAIT_LIMIT_S)
    feed.add(Stream("events", f"{path}/events", {"follow": True}, after))
    for arrival in feed.arrivals(POLL_INTERVAL_S):
        if arrival is not None and arrival.event is not None:
            event = arrival.event.json()
            session.screen.say(event_line(provider, event))
            if event["type"] in ends:
                return session.get(path)
        if deadline.passed:
            break
    raise NegativeError(f"{provider['name']}: no end after {WAIT_LIMIT_S} s")


def _show_result(session: Session, provider: Document) -> None:
    if session.screen.as_json:
        session.screen.json(provider)
    else:
        session.screen.result(f"{provider['id']}  {provider['name']}  {provider['status']}")


def _notebook(endpoint: Document | None) -> str | None:
    """Where a notebook has announced itself, and until when; None: none has."""
    if endpoint is None:
        return None
    gpus = f"{endpoint['gpu_type']}:{endpoint['gpu_count']}" if endpoint["gpu_count"] else "cpu"
    held = f", held by {endpoint['held_by']}" if endpoint["held_by"] else ""
    until = moment_text(endpoint["expires_at"])
    return f"{endpoint['host']}:{endpoint['port']}, {gpus}, until {until}{held}"


def _preferred(found: Document) -> str | None:
    """What is left of its preferred credits, in words; None: it has none."""
    given = found.get("preferred_credits_microcredits")
    if given is None:
        return None
    left = found.get("preferred_credits_left_microcredits") or 0
    return f"{credits_text(given)} credits are spent, {credits_text(left)} are left"


def _key(credentials: Document) -> str | None:
    return f"{credentials['key']} in {credentials['reference']}" if credentials else None
