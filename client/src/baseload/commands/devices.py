"""`baseload device`: machines at the edge, each with one model that runs for ever."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.logs import LogPrinter, stored_pieces
from baseload.commands.lookup import find_id
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import bytes_text, moment_text, pick
from baseload.commands.waiting import WAIT_LIMIT_S, Goal, newest_event, wait_for

app = new_app()

Reference = Annotated[str, typer.Argument(help="id or name")]
Limit = Annotated[float, typer.Option(help="seconds that --wait waits at most")]
CONFIGURATIONS = "device-configurations"
NONE = "none"
LOG_LINES = 1000
MOST_LOG_LINES = 10_000


@command(app)
def add(
    session: Session,
    name: Annotated[str, typer.Argument(help="what to call it")],
    region: Annotated[str, typer.Option(help="id or name; its storage node is active")],
    minion_id: Annotated[
        str, typer.Option(help="SHA256:…, the fingerprint of its SSH host key, as join.sh shows")
    ],
    address: Annotated[str | None, typer.Option(help="default: what it announces")] = None,
    port: Annotated[int | None, typer.Option(help="of its SSH server")] = None,
    user: Annotated[str | None, typer.Option(help="to log in as")] = None,
    no_upnp: Annotated[
        bool, typer.Option("--no-upnp", help="the machine closes its router's port; give --address")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is active")] = False,
    timeout: Limit = WAIT_LIMIT_S,
) -> None:
    """Add a Jetson as a device, by its minion id, once `join.sh` was run there."""
    optional = {"address": address, "port": port, "user": user}
    body: Document = {
        "region_id": find_id(session, "regions", region),
        "name": name,
        "minion_id": minion_id,
        **({"upnp": False} if no_upnp else {}),
        **{field: value for field, value in optional.items() if value is not None},
    }
    device = session.post("/v1/devices", body)
    if wait:
        device = wait_for(session, "devices", device, Goal(frozenset({"active"}), timeout))
    _show_result(session, device)


@command(app)
def ls(
    session: Session,
    region: Annotated[str | None, typer.Option(help="only of this region")] = None,
    status: Annotated[str | None, typer.Option(help="only with this status, as offline")] = None,
    config: Annotated[str | None, typer.Option(help="only those set to this configuration")] = None,
    inference: Annotated[
        str | None, typer.Option(help="only with this inference status, as failed")
    ] = None,
) -> None:
    """List devices, each with what is wanted of it and what it runs; `list` is the same."""
    query: dict[str, Any] = {"status": status, "inference_status": inference}
    if region is not None:
        query["region_id"] = find_id(session, "regions", region)
    if config is not None:
        query["configuration_id"] = find_id(session, CONFIGURATIONS, config)
    given = {name: value for name, value in query.items() if value is not None}
    devices = session.items("/v1/devices", **given)
    if session.screen.as_json:
        session.screen.json({"items": devices})
        return
    rows = [
        [
            *pick(each, "id", "name", "status", "model"),
            revision_text(each.get("wanted")),
            _running(each),
            each.get("inference_status"),
            _waiting(each),
            each.get("inference_reason") or each.get("status_reason"),
        ]
        for each in devices
    ]
    columns = ("id", "name", "status", "model", "wanted", "running", "inference", "waiting")
    print_list(session.screen, (*columns, "reason"), rows, ("model", "wanted", "waiting", "reason"))


@command(app)
def show(session: Session, device: Reference) -> None:
    """Show a device: what it runs since when, and its hardware as it was found."""
    found = session.get(_path(session, device))
    if session.screen.as_json:
        session.screen.json(found)
        return
    requested = found.get("requested") or {}
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "status")),
            ("reason", found.get("status_reason")),
            ("region", found.get("region_id")),
            ("minion id", found.get("minion_id")),
            ("address", _place(found)),
            ("wanted", revision_text(found.get("wanted"))),
            ("running", _running(found)),
            ("deployed", _deployed(found)),
            ("asked last", _asked(requested) if requested else None),
            ("inference", found.get("inference_status")),
            ("exit code", found.get("exit_code")),
            ("why", found.get("inference_reason")),
            ("output waiting", _waiting(found)),
            ("output dropped", _dropped(found)),
            ("datastore", (found.get("output_backlog") or {}).get("away")),
            *_hardware(found),
            ("added", moment_text(found.get("created_at"))),
        ]
    )
    rows = [
        [each["name"], _verdict(each), each["required"], each["found"]]
        for each in found.get("requirements") or ()
    ]
    if rows:
        session.screen.result("")
        session.screen.table(("requirement", "verdict", "required", "found"), rows)


@command(app)
def logs(
    session: Session,
    device: Reference,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="until what it runs has ended")
    ] = False,
    lines: Annotated[
        int,
        typer.Option(min=0, max=MOST_LOG_LINES, help="the last so many of what was said before"),
    ] = LOG_LINES,
) -> None:
    """Print what the command of a device prints now, read from the device itself.

    The device must be reached. Control characters are shown as escapes; with --json there is a
    line for each piece of the log: offset, text.
    """
    path = f"{_path(session, device)}/logs"
    printer = LogPrinter(1, sys.stdout, is_own=False)

    def show(piece: Document) -> None:
        if session.screen.as_json:
            session.screen.json_line({name: piece[name] for name in ("offset", "text")})
        else:
            printer.piece(0, piece["text"])

    if not follow:
        for piece in stored_pieces(session.chunks(path, lines=lines), 0):
            show(piece)
        return
    for event in session.transport.follow(path, {"lines": lines, "follow": True}):
        show(event.json())
    session.screen.say(f"what it ran has ended: baseload device show {device}")


@command(app, "set")
def set_(
    session: Session,
    device: Reference,
    config: Annotated[str, typer.Option(help=f"id or name of a configuration, or {NONE}")],
) -> None:
    """Set the configuration of a device; `baseload deploy` then brings it there."""
    wanted = None if config == NONE else find_id(session, CONFIGURATIONS, config)
    _show_result(session, session.patch(_path(session, device), {"configuration_id": wanted}))


@dataclasses.dataclass(frozen=True)
class _Action:
    """An action of a device. status: of the device after it, which `--wait` waits for."""

    name: str
    help: str
    status: str | None = None


_ACTIONS = (
    _Action("activate", "Let a device in maintenance follow deployments.", "active"),
    _Action(
        "maintenance",
        "Put a device in maintenance: what it runs goes on, and deployments wait.",
        "maintenance",
    ),
    _Action("reboot", "Reboot a device, which then runs what it ran before."),
    _Action(
        "stop",
        "Stop what a device runs, also after its next start; one that is away stops when it is "
        "back.",
    ),
)


def _add_action(action: _Action) -> None:
    """Add the command of an action; those with a status can be waited for."""

    def act(session: Session, device: Reference) -> None:
        _show_result(session, session.post(f"{_path(session, device)}/{action.name}"))

    def switch(
        session: Session,
        device: Reference,
        wait: Annotated[bool, typer.Option("--wait", help="until the device has switched")] = False,
        timeout: Limit = WAIT_LIMIT_S,
    ) -> None:
        path = _path(session, device)
        after = newest_event(session, path) if wait else None
        found = session.post(f"{path}/{action.name}")
        if wait:
            goal = Goal(frozenset({action.status or ""}), timeout, after)
            found = wait_for(session, "devices", found, goal)
        _show_result(session, found)

    function: Callable[..., None] = switch if action.status else act
    function.__doc__ = action.help
    command(app, action.name)(function)


for _action in _ACTIONS:
    _add_action(_action)


@command(app, takes_yes=True)
def rm(session: Session, device: Reference) -> None:
    """Remove a device: its inference ends, and what it has of the platform is removed there."""
    removed = session.delete(_path(session, device))
    _show_result(session, removed, now="removing")


command(app, "list")(ls)
command(app, "remove", takes_yes=True)(rm)


def revision_text(reference: Document | None) -> str | None:
    """`detector 3`, the name of a configuration with a revision of it."""
    if reference is None:
        return None
    return f"{reference['configuration_name']} {reference['revision']}"


def _path(session: Session, device: str) -> str:
    return f"/v1/devices/{find_id(session, 'devices', device)}"


def _running(device: Document) -> str | None:
    """What it runs; that it is not what is wanted is said beside it."""
    text = revision_text(device.get("running"))
    if device.get("is_deployed") or device.get("wanted") is None:
        return text
    return f"{text or 'nothing'} (not yet deployed)"


def _deployed(device: Document) -> str | None:
    if device.get("deployed_at") is None:
        return None
    by = device.get("deployed_by_name") or device.get("deployed_by") or "-"
    return f"{moment_text(device['deployed_at'])} by {by}"


def _asked(requested: Document) -> str:
    what = revision_text(requested.get("revision")) or "nothing"
    state = "followed" if requested.get("followed") else "not followed yet"
    by = requested.get("requested_by_name") or requested.get("requested_by") or "-"
    if requested.get("deployment_id"):
        by += f" with {requested['deployment_id']}"
    return f"to run {what}, {moment_text(requested['at'])} by {by}: {state}"


def _waiting(device: Document) -> str | None:
    """What of its output is kept on the device, because its datastore has not taken it yet."""
    backlog = device.get("output_backlog") or {}
    return _files(backlog.get("waiting_files"), backlog.get("waiting_bytes"))


def _dropped(device: Document) -> str | None:
    backlog = device.get("output_backlog") or {}
    return _files(backlog.get("dropped_files"), backlog.get("dropped_bytes"))


def _files(count: int | None, size: int | None) -> str | None:
    if not count:
        return None
    return f"{count} file{'s' * (count > 1)}, {bytes_text(size or 0)}"


def _place(device: Document) -> str | None:
    if not device.get("address"):
        return None
    return f"{device['user']}@{device['address']}:{device['port']}"


def _hardware(device: Document) -> list[tuple[str, Any]]:
    hardware = device.get("hardware") or {}
    jetson = hardware.get("jetson") or {}
    degrees = jetson.get("temperatures_c") or {}
    load = jetson.get("gpu_load")
    return [
        ("model", device.get("model")),
        ("jetpack", jetson.get("jetpack")),
        ("l4t", jetson.get("l4t_release")),
        ("power mode", jetson.get("power_mode")),
        ("temperatures", [f"{name} {value:g} °C" for name, value in degrees.items()] or None),
        ("gpu load", None if load is None else f"{load}%"),
        ("memory", _bytes(hardware.get("memory_bytes"))),
        ("disk free", _bytes(hardware.get("free_disk_bytes"))),
        ("system", hardware.get("os_name")),
        ("runtimes", hardware.get("runtimes")),
    ]


def _bytes(count: int | None) -> str | None:
    return bytes_text(count) if count else None


def _verdict(requirement: Document) -> str:
    if requirement.get("relaxed"):
        return "relaxed"
    return "passed" if requirement["passed"] else "failed"


def _show_result(session: Session, device: Document, now: str | None = None) -> None:
    """One in a line. now: what happens to it, where its status does not say so yet."""
    if session.screen.as_json:
        session.screen.json(device)
    else:
        status = now or device["status"]
        session.screen.result(f"{device['id']}  {device['name']}  {status}")
