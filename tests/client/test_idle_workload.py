"""`baseload idle-workload`: seen, set and removed, without touching what was not named."""

import asyncio
import sys

import pytest
from baseload.commands.app import run

from activities.db import tables
from tests.client.conftest import Desk

COMMAND = 'work --to "$BASELOAD_WALLET_XMR"'


def node_of(desk: Desk) -> str:
    async def make() -> str:
        region_id = await desk.person.region()
        return await desk.person.node(region_id)

    return asyncio.run(make())


def test_a_workload_and_wallets_are_set_shown_and_removed_one_by_one(desk: Desk) -> None:
    first = desk.json("idle-workload", "show")
    assert first == {"idle_workload": None, "wallets": {}, "nodes": []}
    assert "none: no idle workload is set" in desk.baseload("idle-workload", "show").out
    given = ("--command", COMMAND, "--image", "shop/miner:1", "--env", "POOL=a=b")
    made = desk.json("idle-workload", "set", *given, "--wallet", "XMR=4abc")
    workload = {"command": COMMAND, "image": "shop/miner:1", "environment": {"POOL": "a=b"}}
    assert made == {"idle_workload": workload, "wallets": {"XMR": "4abc"}}
    more = desk.json("idle-workload", "set", "--wallet", "BTC=bc1", "--wallet", "XMR=5def")
    assert more == {"idle_workload": workload, "wallets": {"BTC": "bc1", "XMR": "5def"}}
    shown = desk.baseload("idle-workload", "set", "--command", "true").out
    for words in ("command", "true", "BTC bc1", "XMR 5def"):
        assert words in shown
    assert "shop/miner" not in shown, "another command has an image of its own"
    left = desk.json("idle-workload", "rm", "--wallet", "BTC", "--yes")
    assert (left["wallets"], left["idle_workload"]["command"]) == ({"XMR": "5def"}, "true")
    gone = desk.json("idle-workload", "rm")
    assert gone == {"idle_workload": None, "wallets": {"XMR": "5def"}}
    (row,) = [one for one in desk.site.rows(tables.Account) if one.name == "ada"]
    assert (row.idle_workload, row.wallets) == (None, {"XMR": "5def"})


def test_it_shows_what_each_node_has_done(desk: Desk) -> None:
    node_id = node_of(desk)
    desk.json("idle-workload", "set", "--command", COMMAND, "--wallet", "XMR=4abc")
    assert desk.json("idle-workload", "show")["nodes"] == []
    assert desk.json("node", "idle-workload", node_id)["mining"] is True
    facts = {"state": "running", "run_s": 7200.0, "energy_joules": 3.6e6, "energy_s": 7200.0}
    desk.site.set(tables.Node, node_id, idle_workload=facts)
    (line,) = [
        line for line in desk.baseload("idle-workload", "show").out.splitlines() if node_id in line
    ]
    assert "running, 2.0 h, 1.00 kWh" in line
    assert "running, 2.0 h, 1.00 kWh" in desk.baseload("node", "show", node_id).out
    (node,) = desk.json("idle-workload", "show")["nodes"]
    assert node["idle_workload"]["run_s"] == 7200.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("set",), "say what is set"),
        (("set", "--image", "a"), "say --command as well"),
        (("set", "--command", "true", "--env", "POOL"), "--env POOL: asked NAME=VALUE"),
        (("set", "--wallet", "XMR"), "--wallet XMR: asked COIN=ADDRESS"),
        (("rm", "--wallet", "XMR"), "--wallet XMR: the account has no such wallet, but none"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_sent(
    desk: Desk, given: tuple[str, ...], words: str
) -> None:
    ended = desk.baseload("idle-workload", *given)
    assert (ended.code, words in ended.err) == (2, True), ended.err


def test_the_rules_of_the_api_are_shown(desk: Desk) -> None:
    ended = desk.baseload("idle-workload", "set", "--wallet", "xmr=4abc")
    assert (ended.code, "wallets" in ended.err) == (3, True), ended.err


@pytest.mark.parametrize("name", ["show", "set", "rm"])
def test_each_command_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["baseload", "idle-workload", name, "--help"])
    with pytest.raises(SystemExit) as leaving:
        run()
    said = capsys.readouterr().out
    assert (leaving.value.code, "--json" in said) == (0, True)
