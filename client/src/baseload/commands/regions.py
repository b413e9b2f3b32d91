"""`baseload region`: the regions that nodes belong to."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find, find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text, pick
from baseload.commands.waiting import WAIT_LIMIT_S, Goal, wait_for

app = new_app()


@command(app)
def add(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique in the account")],
    cloud_region: Annotated[str, typer.Argument(help="of the cloud, such as us-central1")],
    provider: Annotated[
        str | None, typer.Option(help="id or name; default: the only one there is")
    ] = None,
    storage_class: Annotated[
        str | None, typer.Option(help="of its storage node: micro … xlarge; default: small")
    ] = None,
    internal_addresses: Annotated[
        bool, typer.Option("--internal-addresses", help="reach machines without external ones")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is healthy")] = False,
    timeout: Annotated[
        float, typer.Option(help="seconds that --wait waits at most")
    ] = WAIT_LIMIT_S,
) -> None:
    """Create a region in a cloud, with network and storage node; it costs until it is removed."""
    body = {
        "name": name,
        "provider_id": _provider_id(session, provider, in_a_cloud=True),
        "cloud_region": cloud_region,
        **({"storage_node_class": storage_class} if storage_class else {}),
        **({"uses_internal_addresses": True} if internal_addresses else {}),
    }
    region = session.post("/v1/regions", body)
    _show_when_there(session, region, Goal(frozenset({"healthy"}), timeout) if wait else None)


@command(app)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique in the account")],
    provider: Annotated[
        str | None, typer.Option(help="id or name; default: the only one there is")
    ] = None,
    storage: Annotated[str, typer.Option(help="local or central; fixed for life")] = "local",
    public: Annotated[
        bool, typer.Option("--public", help="jobs of other customers on spare capacity")
    ] = False,
    relax: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="take machines that fail this requirement, such as tpm-2 (all names: baseload "
            "node show); all: whatever they fail",
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="let other people and keys still log in to its machines; without it the "
            "platform closes every SSH login but its own until a machine is removed",
        ),
    ] = False,
    node_root: Annotated[
        str | None,
        typer.Option(help="the platform's folder on its nodes; default: each node's own"),
    ] = None,
    own_worker: Annotated[
        bool, typer.Option("--own-worker", help="a worker in its own network serves it")
    ] = False,
    apt_packages: Annotated[
        bool, typer.Option("--apt-packages", help="apt packages of jobs stay on its machines")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is healthy")] = False,
) -> None:
    """Create a region of your own machines."""
    body = {
        "name": name,
        "provider_id": _provider_id(session, provider),
        "storage_mode": storage,
        "public": public,
        "relaxed_requirements": relax or [],
        "exclusive_nodes": not shared,
        "own_worker": own_worker,
        **({"allows_apt_packages": True} if apt_packages else {}),
    }
    region = session.post("/v1/regions", body | ({"node_root": node_root} if node_root else {}))
    _show_when_there(session, region, Goal(frozenset({"healthy"})) if wait else None)


def _show_when_there(session: Session, region: Document, goal: Goal | None) -> None:
    if goal is not None:
        region = wait_for(session, "regions", region, goal)
    for warning in region.get("warnings") or ():
        session.screen.say(f"warning: {warning}")
    if session.screen.as_json:
        session.screen.json(region)
    else:
        session.screen.result(f"{region['id']}  {region['name']}  {region['status']}")


@command(app)
def ls(session: Session) -> None:
    """List regions."""
    regions = session.items("/v1/regions")
    if session.screen.as_json:
        session.screen.json({"items": regions})
        return
    names = (
        "id", "name", "provider_kind", "cloud_region", "storage_mode", "public", "status",
        "status_reason",
    )  # fmt: skip
    session.screen.table(
        ("id", "name", "kind", "in", "storage", "public", "status", "reason"),
        [pick(each, *names) for each in regions],
    )


@command(app)
def show(session: Session, region: Annotated[str, typer.Argument(help="id or name")]) -> None:
    """Show a region."""
    found = find(session, "regions", region)
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "status")),
            ("reason", found.get("status_reason")),
            ("provider", f"{found.get('provider_id')} ({found.get('provider_kind')})"),
            ("in the cloud", found.get("cloud_region")),
            ("storage", found.get("storage_mode")),
            ("storage node", found.get("storage_node_class")),
            ("public", found.get("public")),
            ("guests", _policy_text(found) if found.get("public") else None),
            ("other logins closed", found.get("exclusive_nodes")),
            ("internal addresses", found.get("uses_internal_addresses") or None),
            ("own worker", found.get("own_worker")),
            ("apt packages stay", found.get("allows_apt_packages")),
            ("relaxed", found.get("relaxed_requirements") or None),
            ("trusted jobs only", found.get("trusted_only_reason")),
            ("created", moment_text(found.get("created_at"))),
        ]
    )


@command(app)
def change(
    session: Session,
    region: Annotated[str, typer.Argument(help="id or name")],
    own_worker: Annotated[
        bool | None,
        typer.Option(
            "--own-worker/--shared-worker",
            help="which worker reaches its nodes; the region must have none",
        ),
    ] = None,
    apt_packages: Annotated[
        bool | None,
        typer.Option(
            "--apt-packages/--no-apt-packages",
            help="whether apt packages of jobs are installed on its machines, and stay there",
        ),
    ] = None,
    public: Annotated[
        bool | None,
        typer.Option(
            "--public/--private",
            help="whether guests may come, see baseload region guests; it must have no nodes",
        ),
    ] = None,
) -> None:
    """Change which worker serves a region, what jobs may leave there, or whether it is public."""
    asked = {"own_worker": own_worker, "allows_apt_packages": apt_packages, "public": public}
    body = {name: value for name, value in asked.items() if value is not None}
    if not body:
        raise MistakeError(
            "nothing to change: say --own-worker, --apt-packages, --public or their opposites"
        )
    path = f"/v1/regions/{find_id(session, 'regions', region)}"
    changed = session.patch(path, body)
    if session.screen.as_json:
        session.screen.json(changed)
    else:
        for name in body:
            shown = "yes" if changed[name] else "no"
            session.screen.result(f"{region}: {name.replace('_', ' ')}: {shown}")


@command(app)
def guests(
    session: Session,
    region: Annotated[str, typer.Argument(help="id or name")],
    from_account: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="let in jobs of this account; repeatable")
    ] = None,
    from_project: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="let in jobs of this project; repeatable")
    ] = None,
    hours: Annotated[
        str | None, typer.Option(metavar="FROM-UNTIL", help="place them at these UTC hours: 22-6")
    ] = None,
    most_gpus: Annotated[
        int | None, typer.Option(help="the most GPUs of the region that they hold at once")
    ] = None,
    preempt_after: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="let them leave for your jobs with this notice; without it they never must",
        ),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="take all, at any time, as at the beginning")
    ] = False,
) -> None:
    """Show or set which guests a public region takes; what is not given has no limit."""
    policy = {
        "accounts": from_account,
        "projects": from_project,
        "most_gpus": most_gpus,
        "preemption_notice_s": preempt_after,
        **_hours(hours),
    }
    policy = {name: value for name, value in policy.items() if value is not None}
    if everyone and policy:
        raise MistakeError("--everyone is given alone")
    if everyone or policy:
        path = f"/v1/regions/{find_id(session, 'regions', region)}"
        found = session.patch(path, {"guest_policy": policy})
    else:
        found = find(session, "regions", region)
    if session.screen.as_json:
        session.screen.json({"public": found["public"], "guest_policy": found["guest_policy"]})
        return
    if not found["public"]:
        session.screen.say("the region is not public: no guest comes, whatever is set")
    session.screen.result(f"{region}: {_policy_text(found)}")


def _hours(hours: str | None) -> dict[str, int]:
    if hours is None:
        return {}
    since, _, until = hours.partition("-")
    if not (since.isdigit() and until.isdigit()):
        raise MistakeError(f"--hours {hours}: is two hours from 0 to 23, such as 22-6")
    return {"from_hour": int(since), "until_hour": int(until)}


def _policy_text(region: Document) -> str:
    """The guest policy of a region in words."""
    policy = region.get("guest_policy") or {}
    named = [*(policy.get("accounts") or ()), *(policy.get("projects") or ())]
    parts = ["jobs of " + (", ".join(named) or "every account")]
    if policy.get("from_hour") is not None:
        parts.append(f"from {policy['from_hour']}:00 to {policy['until_hour']}:00 UTC")
    if policy.get("most_gpus") is not None:
        parts.append(f"at most {policy['most_gpus']} GPUs")
    notice_s = policy.get("preemption_notice_s")
    parts.append("never pre-empted" if notice_s is None else f"pre-empted after {notice_s} s")
    return "; ".join(parts)


@command(app, takes_yes=True)
def rm(
    session: Session,
    region: Annotated[str, typer.Argument(help="id or name")],
    force: Annotated[bool, typer.Option("--force", help="with its nodes")] = False,
) -> None:
    """Remove a region."""
    path = f"/v1/regions/{find_id(session, 'regions', region)}"
    removed = session.delete(path, force=force or None)
    if session.screen.as_json:
        session.screen.json(removed)
    else:
        session.screen.result(f"{region}: {removed.get('status', 'removed')}")


def _provider_id(session: Session, provider: str | None, *, in_a_cloud: bool = False) -> str:
    if provider:
        return find_id(session, "providers", provider)
    ready: list[Document] = [
        each
        for each in session.items("/v1/providers")
        if each["status"] == "ready" and (each["kind"] != "physical") == in_a_cloud
    ]
    if len(ready) != 1:
        if ready:
            raise MistakeError(f"{len(ready)} providers are ready: say which with --provider")
        raise MistakeError(
            "no provider is ready: baseload provider enable, then baseload provider ls"
        )
    return str(ready[0]["id"])
