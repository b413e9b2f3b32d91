"""`baseload node`: machines of a region."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.idle_workload import figures
from baseload.commands.lookup import find, find_id
from baseload.commands.node_actions import NODE_ACTIONS, NodeAction
from baseload.commands.reachability import answers, reachable_url
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import bytes_text, moment_text, pick
from baseload.commands.waiting import WAIT_LIMIT_S, Goal, newest_event, wait_for

app = new_app()

Reference = Annotated[str, typer.Argument(help="id or name")]
Limit = Annotated[float, typer.Option(help="seconds that --wait waits at most")]
SETTLED = frozenset({"maintenance", "active"})


@command(app)
def add(
    session: Session,
    name: Annotated[str, typer.Argument(help="what to call it")],
    region: Annotated[str, typer.Option(help="id or name of its region")],
    minion_id: Annotated[
        str | None,
        typer.Option(help="SHA256:…, the fingerprint of its SSH host key, as join.sh shows"),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="make one in a cloud, such as T4:1; it costs until removed")
    ] = None,
    disk_size_gb: Annotated[int | None, typer.Option(help="of one made in a cloud")] = None,
    address: Annotated[str | None, typer.Option(help="default: what it announces")] = None,
    port: Annotated[int | None, typer.Option(help="of its SSH server")] = None,
    user: Annotated[str | None, typer.Option(help="to log in as")] = None,
    service: Annotated[list[str] | None, typer.Option(help="compute (default), storage")] = None,
    no_upnp: Annotated[
        bool, typer.Option("--no-upnp", help="the machine closes the port on its router; --address")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is in maintenance")] = False,
    timeout: Limit = WAIT_LIMIT_S,
) -> None:
    """Add a machine by its minion id, its SSH host key's fingerprint, or make one in a cloud."""
    optional = {
        "address": address, "port": port, "user": user, "services": service,
        "minion_id": minion_id, "gpus": gpus, "disk_size_gb": disk_size_gb,
    }  # fmt: skip
    body = {
        "region_id": find_id(session, "regions", region),
        "name": name,
        **({"upnp": False} if no_upnp else {}),
        **{field: value for field, value in optional.items() if value is not None},
    }
    node = session.post("/v1/nodes", body)
    if wait:
        node = wait_for(session, "nodes", node, Goal(SETTLED, timeout))
    _show_result(session, node)


@command(app, "join-token")
def join_token(
    session: Session,
    region: Annotated[str, typer.Option(help="id or name of the region that the machine joins")],
    expires_in_hours: Annotated[float, typer.Option(help="until it must have been used")] = 24.0,
) -> None:
    """Make a token with which one machine of yours joins a region; it is shown once."""
    joined = find(session, "regions", region)
    body = {
        "region_id": joined["id"],
        "expires_in_s": round(expires_in_hours * 3600),
    }
    made = session.post("/v1/join-tokens", body)
    if session.screen.as_json:
        session.screen.json(made)
        return
    url = reachable_url(session.transport.configuration.url)
    options = {"--api": url, "--token": made["secret"], "--key": made["ssh_public_key"]}
    words = (word for option in options.items() for word in option)
    session.screen.result(f"curl -fsS {url}/join.sh | sh -s -- {shlex.join(words)}")
    session.screen.say(
        f"run it on the machine, as root, before {moment_text(made['expires_at'])}; it shows the "
        f"machine's minion id. Then here: baseload node add NAME --region {region} --minion-id ID "
        "--wait && baseload node activate NAME"
    )
    if joined["storage_mode"] == "central":
        session.screen.say(
            "the region has central storage, so its storage node comes first: add it with "
            "--service storage; it becomes active by itself"
        )
    if not answers(url):
        session.screen.say(
            f"no other machine can reach this API at {url} now: `make down`, then "
            "`BASELOAD_API=0.0.0.0:8700 make up`, lets it listen on all addresses of this machine"
        )


@command(app)
def ls(
    session: Session,
    region: Annotated[str | None, typer.Option(help="only of this region")] = None,
) -> None:
    """List nodes."""
    nodes = session.items("/v1/nodes")
    if region is not None:
        region_id = find_id(session, "regions", region)
        nodes = [node for node in nodes if node["region_id"] == region_id]
    if session.screen.as_json:
        session.screen.json({"items": nodes})
        return
    rows = [
        [
            *pick(node, "id", "name", "status"),
            _gpus(node),
            f"{node.get('cpu_count') or '-'}",
            bytes_text(node.get("memory_bytes") or None),
            _place(node),
            node.get("status_reason"),
        ]
        for node in nodes
    ]
    columns = ("id", "name", "status", "gpus", "cpus", "memory", "address", "reason")
    print_list(session.screen, columns, rows, ("memory", "cpus", "address", "gpus", "reason"))


@command(app)
def show(session: Session, node: Reference) -> None:
    """Show a node: hardware, requirements, and who holds its GPUs."""
    found = session.get(f"/v1/nodes/{find_id(session, 'nodes', node)}")
    if session.screen.as_json:
        session.screen.json(found)
        return
    hardware = found.get("hardware") or {}
    preparation = found.get("preparation") or {}
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "status")),
            ("reason", found.get("status_reason")),
            ("region", found.get("region_id")),
            ("services", found.get("services") or None),
            ("minion id", found.get("minion_id") or None),
            ("leased", found.get("leased") or None),
            ("address", _place(found)),
            ("system", hardware.get("os_name")),
            ("processor", hardware.get("cpu_model")),
            ("cpus", _reserved(found.get("reserved_cpu_count"), found.get("cpu_count"))),
            ("memory", bytes_text(found.get("memory_bytes") or None)),
            ("runtimes", hardware.get("runtimes")),
            ("trusted jobs only", preparation.get("trusted_only_reason")),
            ("other logins", _other_logins(preparation)),
            ("nfs shares by", preparation.get("nfs_way")),
            ("smb shares by", preparation.get("smb_way")),
            ("takes the place of", found.get("fills_from")),
            ("region's cache", _cache(preparation)),
            ("idle workload", figures(found)),
            ("jobs", found.get("job_ids") or None),
            ("created", moment_text(found.get("created_at"))),
        ]
    )
    for gpu in found.get("gpus") or ():
        session.screen.result(f"  gpu {gpu['index']}: {gpu['name']}  {gpu.get('job_id') or 'free'}")
    _requirements(session, found)


def _add_action(action: NodeAction) -> None:
    """Add the command of an action, with the options that the action has."""

    def act(session: Session, node: Reference) -> None:
        _act(session, node, action)

    def act_with_force(
        session: Session,
        node: Reference,
        force: Annotated[bool, typer.Option("--force", help="also while jobs run there")] = False,
    ) -> None:
        _act(session, node, action, force=force or None)

    def switch(
        session: Session,
        node: Reference,
        wait: Annotated[bool, typer.Option("--wait", help="until the node has switched")] = False,
        timeout: Limit = WAIT_LIMIT_S,
    ) -> None:
        goal = Goal(frozenset({action.status or ""}), timeout) if wait else None
        _act(session, node, action, goal)

    function: Callable[..., None] = act_with_force if action.takes_force else act
    function = switch if action.status else function
    function.__doc__ = action.help
    command(app, action.name, takes_yes=action.takes_force)(function)


for _action in NODE_ACTIONS:
    _add_action(_action)


@command(app, "idle-workload")
def idle_workload(
    session: Session,
    node: Reference,
    off: Annotated[bool, typer.Option("--off", help="end it, and start it no more")] = False,
) -> None:
    """Run the account's idle workload on a node while no job is there, see idle-workload."""
    found = find(session, "nodes", node)
    changed = session.patch(f"/v1/nodes/{found['id']}", {"mining": not off})
    _show_result(session, changed)


@command(app)
def replace(
    session: Session,
    node: Reference,
    name: Annotated[str | None, typer.Option(help="what to call the new one")] = None,
    minion_id: Annotated[
        str | None, typer.Option(help="of the machine that takes its place; in a cloud none")
    ] = None,
    address: Annotated[str | None, typer.Option(help="default: what it announces")] = None,
    port: Annotated[int | None, typer.Option(help="of its SSH server")] = None,
    user: Annotated[str | None, typer.Option(help="to log in as")] = None,
) -> None:
    """Replace a region's storage node: another one is filled from it, then it is removed."""
    given = {"minion_id": minion_id, "address": address, "port": port, "user": user, "name": name}
    body = {field: value for field, value in given.items() if value is not None}
    found = find(session, "nodes", node)
    if body and name is None:
        body["name"] = f"{found['name']}-2"
    _show_result(session, session.post(f"/v1/nodes/{found['id']}/replace", body or None))


@command(app, takes_yes=True)
def rm(
    session: Session,
    node: Reference,
    force: Annotated[bool, typer.Option("--force", help="also while jobs run there")] = False,
) -> None:
    """Remove a node."""
    found = find(session, "nodes", node)
    removed = session.delete(f"/v1/nodes/{found['id']}", force=force or None)
    _show_result(session, found | removed)


def _act(
    session: Session, node: str, action: NodeAction, goal: Goal | None = None, **query: Any
) -> None:
    path = f"/v1/nodes/{find_id(session, 'nodes', node)}"
    after = newest_event(session, path) if goal else None
    found = session.post(f"{path}/{action.name}", **query)
    if goal:
        found = wait_for(session, "nodes", found, dataclasses.replace(goal, after=after))
    _show_result(session, found)


def _show_result(session: Session, node: Document) -> None:
    if session.screen.as_json:
        session.screen.json(node)
    else:
        session.screen.result(f"{node['id']}  {node['name']}  {node['status']}")


def _requirements(session: Session, node: Document) -> None:
    rows = [
        [each["name"], _verdict(each), each["required"], each["found"]]
        for each in node.get("requirements") or ()
    ]
    if rows:
        session.screen.result("")
        session.screen.table(("requirement", "result", "required", "found"), rows)


def _verdict(requirement: Document) -> str:
    if requirement.get("relaxed"):
        return "relaxed"
    return "passed" if requirement["passed"] else "failed"


def _gpus(node: Document) -> str:
    count = node.get("gpu_count") or 0
    return f"{count} x {node.get('gpu_type')}" if count else "-"


def _place(node: Document) -> str | None:
    if not node.get("address"):
        return None
    return f"{node.get('user')}@{node['address']}:{node.get('port')}"


def _other_logins(preparation: Document) -> str | None:
    """Whether logins other than the platform's are closed."""
    if not preparation:
        return None
    return "closed" if preparation.get("closed_logins") else "left open"


def _cache(preparation: Document) -> str | None:
    """Where a storage node serves its region's cache, or why it does not."""
    if not preparation.get("cache"):
        return preparation.get("no_cache_reason")
    how = "over TLS" if preparation.get("cache_is_secure") else "over plain HTTP"
    return f"{preparation['cache']}, {how}"


def _reserved(taken: int | None, count: int | None) -> str | None:
    return f"{count}, {taken or 0} of them reserved" if count else None
