"""`baseload deployment`: revisions of configurations on their way to devices."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.durations import seconds_of
from baseload.commands.lookup import UnknownNameError, find, find_id
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, MistakeError, NegativeError, Session, command
from baseload.commands.terminal import (
    console_of,
    counted,
    moment_text,
    pick,
    printable,
    table_of,
)
from baseload.commands.waiting import Goal, state_line, status_text, wait_for

if TYPE_CHECKING:
    from rich.console import RenderableType

app = new_app()
deployment = new_app()

Reference = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="id, or a name that only one has")
]
ENDED = frozenset({"finished", "stopped", "failed", "rolled_back"})
DEPLOYMENTS = "/v1/device-deployments"
POLL_INTERVAL_S = 2.0
MOST_DEVICES = 10_000
MOST_SHOWN = 30
"""How many devices the live table has, those first that need attention."""
COLUMNS = ("device", "status", "state", "reason")
_FIRST = ("failed", "asked", "waiting", "left", "superseded", "withdrawn", "running")
_NO_LIMIT_S = 31 * 86_400.0
"""Longer than any deployment waits for devices."""


@command(app)
def deploy(
    session: Session,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG|DEVICE…", help="a configuration, for all its devices; or devices"
        ),
    ],
    revision: Annotated[int | None, typer.Option(help="default: the latest")] = None,
    max_unavailable: Annotated[
        int | None, typer.Option(help="at most so many devices change at the same time (1000)")
    ] = None,
    max_failures: Annotated[
        int | None, typer.Option(help="after so many failed devices no more are asked")
    ] = None,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback", help="with --max-failures: then all return to what they ran before"
        ),
    ] = False,
    limit: Annotated[
        str | None, typer.Option(help="wait so long for devices that are away: 10m, 24h (default)")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="do not show how it goes until its end")
    ] = False,
) -> None:
    """Bring a revision to devices, and show how it goes: deploy detector --max-unavailable 5

    The exit code is 0 only if no device has failed. Ctrl-C ends the view, not the deployment.
    """
    options: Document = {
        "revision": revision,
        "max_unavailable": max_unavailable,
        "max_failures": max_failures,
        "limit_s": None if limit is None else round(seconds_of(limit, "--limit")),
    }
    body = _targets(session, target)
    body |= {name: value for name, value in options.items() if value is not None}
    if rollback:
        body["rolls_back"] = True
    made = session.post(DEPLOYMENTS, body)
    if no_wait:
        _show_result(session, made)
        return
    _follow(session, made)


@command(deployment)
def ls(
    session: Session,
    config: Annotated[str | None, typer.Option(help="only of this configuration")] = None,
    status: Annotated[str | None, typer.Option(help="only with this status, as paused")] = None,
) -> None:
    """List deployments, newest first; `list` is the same."""
    query: Document = {} if status is None else {"status": status}
    if config is not None:
        query["configuration_id"] = find_id(session, "device-configurations", config)
    found = session.items(DEPLOYMENTS, 200, **query)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [
            *pick(each, "id", "name"),
            status_text(each),
            *pick(each["counts"], "total", "running", "failed"),
            moment_text(each.get("created_at")),
            each.get("status_reason"),
        ]
        for each in found
    ]
    columns = ("id", "name", "status", "devices", "running", "failed", "begun", "reason")
    print_list(session.screen, columns, rows, ("begun", "reason"))


@command(deployment)
def show(session: Session, deployment_: Reference) -> None:
    """Show a deployment, and how far each of its devices is."""
    found = _find(session, deployment_)
    devices = _devices(session, found)
    if session.screen.as_json:
        session.screen.json({**found, "devices": devices})
        return
    policy = found["policy"]
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name")),
            ("status", status_text(found)),
            ("reason", found.get("status_reason")),
            ("configuration", found.get("configuration_id")),
            ("revision", found.get("revision")),
            ("asked for by", found.get("requested_by_name") or found.get("requested_by")),
            ("max unavailable", policy.get("max_unavailable")),
            ("max failures", policy.get("max_failures")),
            ("rolls back", policy.get("rolls_back")),
            ("waits until", found.get("deadline") and moment_text(found["deadline"])),
            ("begun", moment_text(found.get("created_at"))),
        ]
    )
    session.screen.result("")
    session.screen.table(COLUMNS, _rows(devices))


@command(deployment)
def follow(session: Session, deployment_: Reference) -> None:
    """Show how a deployment goes until its end, as `baseload deploy` does."""
    _follow(session, _find(session, deployment_))


_ORDERS = {
    "pause": "Ask no more devices until the deployment is resumed.",
    "resume": "Go on with a paused deployment.",
    "stop": "End a deployment; devices that were asked already follow it.",
    "roll-back": "End a deployment; devices that were asked return to what they ran before.",
}


def _add_order(name: str, help_text: str) -> None:
    def order(session: Session, deployment_: Reference) -> None:
        path = f"{DEPLOYMENTS}/{_find(session, deployment_)['id']}/{name}"
        _show_result(session, session.post(path))

    order.__doc__ = help_text
    command(deployment, name)(order)


for _name, _help in _ORDERS.items():
    _add_order(_name, _help)

command(deployment, "list")(ls)


def _find(session: Session, reference: str) -> Document:
    return find(session, "device-deployments", reference)


def _targets(session: Session, references: Sequence[str]) -> Document:
    """The configuration, or the devices, that a person names.

    Raises: MistakeError, for a name that both a configuration and a device have, or a configuration
    among several; UnknownNameError.
    """
    if len(references) == 1 and (configuration := _configuration(session, references[0])):
        return {"configuration_id": configuration}
    try:
        return {"device_ids": [find_id(session, "devices", each) for each in references]}
    except UnknownNameError as error:
        if len(references) > 1:
            raise MistakeError(f"{error}; name one configuration, or devices") from None
        raise MistakeError(f"{error}, and no configuration has it") from None


def _configuration(session: Session, reference: str) -> str | None:
    """The id of the configuration of this id or name; None: there is none, so it is a device."""
    if reference.startswith("dev-"):
        return None
    try:
        found = find_id(session, "device-configurations", reference)
    except UnknownNameError:
        return None
    try:
        device = None if found == reference else find_id(session, "devices", reference)
    except UnknownNameError:
        device = None
    if device is not None:
        raise MistakeError(
            f"{reference!r} is a configuration ({found}) and a device ({device}); say which by id"
        )
    return found


def _follow(session: Session, made: Document) -> None:
    """Show a deployment until its end. Raises: NegativeError, when a device has failed."""
    if session.screen.is_rich:
        found = _watch(session, made)
    else:
        found = wait_for(session, "device-deployments", made, Goal(ENDED, _NO_LIMIT_S))
    if session.screen.as_json:
        session.screen.json({**found, "devices": _devices(session, found)})
    elif not session.screen.is_rich:
        session.screen.table(COLUMNS, _rows(_devices(session, found)))
    if found["status"] != "finished" or found["counts"]["failed"]:
        raise NegativeError(state_line(found))
    if not session.screen.as_json:
        session.screen.say(state_line(found))


def _watch(session: Session, made: Document) -> Document:
    """A table on a terminal that changes until the deployment has ended, and then stays."""
    from rich.live import Live

    path = f"{DEPLOYMENTS}/{made['id']}"
    with Live(console=console_of(sys.stdout), auto_refresh=False) as live:
        while True:
            found = session.get(path)
            live.update(_drawn(found, _first_devices(session, found)), refresh=True)
            if found["status"] in ENDED:
                return found
            time.sleep(POLL_INTERVAL_S)


def _drawn(found: Document, devices: list[Document]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    more = found["counts"]["total"] - len(devices)
    below = [Text(f"and {counted(more, 'more device')}", "dim")] if more > 0 else []
    line = f"{found['name']}: {status_text(found)}: {_counts(found['counts'])}"
    return Group(Text(printable(line), "bold"), table_of(COLUMNS, _rows(devices)), *below)


def _counts(counts: Document) -> str:
    """`3 of 5 run it, 1 failed`."""
    words = [f"{counts['running']} of {counted(counts['total'], 'device')} run it"]
    shown = {**counts, "waiting": counts["waiting"] - counts["away"]}
    words += [f"{shown[name]} {name}" for name in ("failed", "away", "waiting") if shown[name]]
    return ", ".join(words)


def _devices(session: Session, found: Document) -> list[Document]:
    """All devices of a deployment, those first that need attention, then by name."""
    devices = session.items(f"{DEPLOYMENTS}/{found['id']}/devices", MOST_DEVICES)
    known = {state: index for index, state in enumerate(_FIRST)}
    return sorted(devices, key=lambda each: (known.get(each["state"], 0), each["name"]))


def _first_devices(session: Session, found: Document) -> list[Document]:
    """As many of them as the live table shows; one call for each state that devices are in."""
    path = f"{DEPLOYMENTS}/{found['id']}/devices"
    devices: list[Document] = []
    for state in _FIRST:
        left = MOST_SHOWN - len(devices)
        if left > 0 and found["counts"][state]:
            of_state = session.items(path, left, state=state)
            devices += sorted(of_state, key=lambda each: str(each["name"]))
    return devices


def _rows(devices: Sequence[Document]) -> list[list[Any]]:
    return [pick(each, "name", "status", "state", "reason") for each in devices]


def _show_result(session: Session, found: Document) -> None:
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['id']}  {found['name']}  {status_text(found)}")
