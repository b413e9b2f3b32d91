"""`baseload idle-workload`: what the account's nodes run while no job is there, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Document, MistakeError, Session, command

app = new_app()
ACCOUNT = "/v1/account"


@command(app)
def show(session: Session) -> None:
    """Show the idle workload, the wallets, and what nodes have done with them."""
    account = session.get(ACCOUNT)
    nodes = [node for node in session.items("/v1/nodes") if node["mining"] or node["idle_workload"]]
    if session.screen.as_json:
        session.screen.json({**_settings(account), "nodes": nodes})
        return
    _show_settings(session, account)
    rows = [
        [node["id"], node["name"], "yes" if node["mining"] else "no", figures(node) or "-"]
        for node in nodes
    ]
    if rows:
        session.screen.result("")
        session.screen.table(("id", "node", "switched on", "idle workload"), rows)


@command(app, "set")
def set_(
    session: Session,
    command_line: Annotated[
        str | None, typer.Option("--command", help="the command, for /bin/sh; no place for secrets")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="the image it runs in; without one, on the machine itself")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="a variable of the command; repeatable"),
    ] = None,
    wallet: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COIN=ADDRESS",
            help="a wallet, in the command $BASELOAD_WALLET_COIN; COIN is 2 to 10 capital letters "
            "and digits; repeatable; others stay",
        ),
    ] = None,
) -> None:
    """Set the workload, which takes the place of the one before, or wallets, or both."""
    body: Document = {}
    if command_line is not None:
        variables = _pairs(env or (), "--env", "NAME=VALUE")
        body["idle_workload"] = {"command": command_line, "image": image, "environment": variables}
    elif image is not None or env:
        raise MistakeError("--image and --env are of a command: say --command as well")
    if wallet:
        wallets = _pairs(wallet, "--wallet", "COIN=ADDRESS")
        body["wallets"] = {**session.get(ACCOUNT)["wallets"], **wallets}
    if not body:
        raise MistakeError("say what is set: --command, --wallet, or both")
    _change(session, body)


@command(app, takes_yes=True)
def rm(
    session: Session,
    wallet: Annotated[
        list[str] | None,
        typer.Option(metavar="COIN", help="remove this wallet, and not the workload; repeatable"),
    ] = None,
) -> None:
    """Remove the workload, or wallets; it ends on all nodes, without any wallet as well."""
    if not wallet:
        _change(session, {"idle_workload": None})
        return
    wallets = session.get(ACCOUNT)["wallets"]
    if missing := [coin for coin in wallet if coin not in wallets]:
        there = ", ".join(sorted(wallets)) or "none"
        raise MistakeError(f"--wallet {missing[0]}: the account has no such wallet, but {there}")
    left = {coin: address for coin, address in wallets.items() if coin not in wallet}
    _change(session, {"wallets": left})


def figures(node: Document) -> str | None:
    """What a node says of its idle workload, and whether it is switched on."""
    said = node.get("idle_workload")
    if said is None:
        return "switched on" if node.get("mining") else None
    joules, hours = said["energy_joules"], said["run_s"] / 3600
    energy = "energy unknown" if joules is None else f"{joules / 3.6e6:.2f} kWh"
    text = f"{said['state']}, {hours:.1f} h, {energy}"
    return f"{text}: {said['reason']}" if said["reason"] else text


def _change(session: Session, body: Document) -> None:
    account = session.patch(ACCOUNT, body)
    if session.screen.as_json:
        session.screen.json(_settings(account))
    else:
        _show_settings(session, account)


def _settings(account: Document) -> Document:
    return {name: account[name] for name in ("idle_workload", "wallets")}


def _show_settings(session: Session, account: Document) -> None:
    workload = account["idle_workload"]
    variables = (workload or {}).get("environment") or {}
    wallets = sorted(account["wallets"].items())
    session.screen.fields(
        [
            ("command", workload["command"] if workload else "none: no idle workload is set"),
            ("image", workload and workload["image"]),
            *(("variable", f"{name}={value}") for name, value in sorted(variables.items())),
            *(("wallet", f"{coin} {address}") for coin, address in wallets),
            *(() if wallets else (("wallet", "none: nodes run no idle workload without one"),)),
        ]
    )


def _pairs(given: Sequence[str], option: str, shape: str) -> dict[str, str]:
    """Names with what they stand for. Raises: MistakeError."""
    found = {}
    for text in given:
        name, has_value, value = text.partition("=")
        if not (name and has_value):
            raise MistakeError(f"{option} {text}: asked {shape}")
        found[name] = value
    return found
