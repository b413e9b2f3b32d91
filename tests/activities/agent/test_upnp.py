"""The keeper of a mapped port, with routers that refuse, lie, and never come to an end."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.agent.upnp import command, discovery, timer
from activities.agent.upnp import keeper as keeping
from activities.agent.upnp.announcing import NotAnnouncedError, NotJoinedError
from activities.agent.upnp.discovery import find_gateway
from activities.agent.upnp.exchange import Deadline, Place, RouterError, place_of
from activities.agent.upnp.keeper import Keeper
from activities.agent.upnp.mapping import LIFETIME_S, usual_port
from activities.agent.upnp.routes import Way, way_to, why_unmapped
from tests.activities.agent.upnp_router import Router, answering, own_loopback, saying, serving

API = "http://8.8.8.8:8700"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHost"
USUAL = usual_port(KEY)
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">'
    b"]><r>&b;</r>"
)


@pytest.fixture(autouse=True)
def search_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LISTEN_S", 0.2)


@pytest.fixture
def router() -> Iterator[Router]:
    with serving(Router()) as found:
        yield found


class Machine:
    """A machine that has a join file, whose keeper says what it does, and no timer."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.announced: list[tuple[str, int]] = []
        self.receipt: object = {"added": True}
        self.join_file = folder / "join"
        self.join()
        self.key = folder / "key.pub"
        self.key.write_text(f"{KEY} root@m\n")
        self.keeper = Keeper(str(self.join_file), self.said.append, 3.0)
        self.folder = Path(self.keeper.folder)
        self.folder.mkdir()

    def join(self, *apis: str) -> None:
        self.join_file.write_text("".join(f"{api} reg-1 join_x keys\n" for api in apis or (API,)))

    def map(self, api: str = API) -> tuple[str, int] | None:
        joined = {"port": 22, "user": "root", "host_key": str(self.key)}
        return self.keeper.map(api, joined)

    def announce(self, api: str, token: str, joined: object, address: str, port: int) -> object:
        assert token == "join_x"
        self.announced.append((address, port))
        if isinstance(self.receipt, Exception):
            raise self.receipt
        return self.receipt

    def keep(self, api: str = API) -> None:
        """Map, and keep what is mapped."""
        found = self.map(api)
        assert found is not None, self.said
        self.keeper.keep(api, found)


@pytest.fixture
def machine(tmp_path: Path, router: Router, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(keeping, "way_to", lambda _: router.way)
    monkeypatch.setattr(keeping, "announce", made.announce)
    monkeypatch.setattr(timer, "start", lambda *_: "by hand")
    monkeypatch.setattr(timer, "end", lambda _: None)
    return made


def test_the_port_is_mapped_for_a_while_and_prolonged(machine: Machine, router: Router) -> None:
    machine.keep()
    assert router.mappings == {USUAL: ("127.0.0.1", 22, LIFETIME_S)}
    router.mappings.clear()
    machine.keeper.renew()
    assert router.mappings == {USUAL: ("127.0.0.1", 22, LIFETIME_S)}


def test_the_state_is_for_the_account_alone_and_has_no_token(
    machine: Machine, router: Router
) -> None:
    machine.keep()
    state = machine.folder / "state.json"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert "join_x" not in state.read_text()


def test_a_router_that_maps_for_ever_only_does_so_until_the_machine_leaves(
    machine: Machine, router: Router
) -> None:
    router.refuses = lambda port, lifetime_s, internal: 725 if lifetime_s else None
    machine.keep()
    assert router.mappings == {USUAL: ("127.0.0.1", 22, 0)}
    router.deletes = False
    machine.join("http://other")
    machine.keeper.end_unjoined()
    assert machine.folder.exists()
    router.deletes = True
    machine.keeper.renew()
    assert router.mappings == {}
    assert not machine.folder.exists()


@pytest.mark.parametrize("says_who", [True, False])
def test_a_port_of_another_machine_stays_its_own(
    machine: Machine, router: Router, says_who: bool
) -> None:
    if says_who:
        router.taken[USUAL] = "127.0.0.77"
    router.refuses = lambda port, lifetime_s, internal: 718 if port == USUAL else None
    found = machine.map()
    assert found is not None
    assert list(router.mappings) == [found[1]]
    assert found[1] != USUAL


def test_a_router_that_maps_a_port_only_to_the_same_one_is_given_that(
    machine: Machine, router: Router
) -> None:
    router.refuses = lambda port, lifetime_s, internal: 724 if port != internal else None
    assert machine.map() == ("8.8.4.4", 22)


@pytest.mark.parametrize(
    ("code", "words"), [(606, "does not allow it"), (728, "no room"), (718, "no free port")]
)
def test_a_router_that_says_no_is_said_with_what_to_do_by_hand(
    machine: Machine, router: Router, code: int, words: str
) -> None:
    router.refuses = lambda *_: code
    assert machine.map() is None
    assert words in machine.said[0]
    assert f"TCP port, {USUAL} for example, to 127.0.0.1 port 22" in machine.said[1]
    assert not machine.folder.exists()


@pytest.mark.parametrize("address", ["100.72.3.4", "192.168.100.2", "10.1.2.3"])
def test_behind_a_router_without_a_public_address_no_port_is_opened(
    machine: Machine, router: Router, address: str
) -> None:
    router.external_address = address
    assert machine.map() is None
    assert f"{address}, which is not public" in machine.said[0]
    assert "AddPortMapping" not in router.asked


def test_an_address_that_changes_is_announced_once(machine: Machine, router: Router) -> None:
    machine.keep()
    machine.keeper.renew()
    assert machine.announced == [("8.8.4.4", USUAL)]  # To hear whether it has been added.
    machine.keeper.renew()
    router.external_address = "8.8.4.5"
    machine.receipt = NotAnnouncedError("the platform is away")
    machine.keeper.renew()
    machine.receipt = {"added": True}
    machine.keeper.renew()
    machine.keeper.renew()
    assert machine.announced[1:] == [("8.8.4.5", USUAL)] * 2


def test_a_machine_that_is_not_a_node_any_more_closes_its_port(
    machine: Machine, router: Router
) -> None:
    machine.keep()
    machine.receipt = NotJoinedError("401")
    machine.keeper.renew()
    assert router.mappings == {}
    assert not machine.folder.exists()


def test_a_node_that_was_added_without_upnp_closes_its_port_and_is_at_its_own_address(
    machine: Machine, router: Router
) -> None:
    machine.keep()
    machine.receipt = {"added": True, "upnp": False}
    machine.keeper.renew()
    assert machine.announced == [("8.8.4.4", USUAL), ("127.0.0.1", 22)]
    assert router.mappings == {}
    assert not machine.folder.exists()


def test_the_port_stays_open_for_the_other_platform(machine: Machine, router: Router) -> None:
    other = "http://9.9.9.9:8700"
    machine.join(API, other)
    for api in (API, other):
        machine.keep(api)
    machine.join(other)
    machine.keeper.end_unjoined()
    assert list(router.mappings) == [USUAL]
    machine.join_file.unlink()
    machine.keeper.end_unjoined()
    assert router.mappings == {}


def test_a_first_announcement_that_fails_closes_the_port_and_a_later_one_does_not(
    machine: Machine, router: Router
) -> None:
    machine.map()
    machine.keeper.withdraw(API, even_accepted=False)
    assert router.mappings == {}
    machine.folder.mkdir()
    machine.keep()
    machine.map()
    machine.keeper.withdraw(API, even_accepted=False)
    assert list(router.mappings) == [USUAL]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Way("192.168.1.5", "192.168.1.9", None), "192.168.1.9, is in a private network"),
        (Way("127.0.0.1", "127.0.0.1", None), "127.0.0.1, is in a private network"),
        (Way("100.101.1.2", "100.72.3.4", None), "100.72.3.4, is in a private network"),
        (Way("8.8.4.4", "8.8.8.8", "8.8.4.1"), "8.8.4.4"),
    ],
)
def test_no_port_is_opened_where_none_is_needed(way: Way, words: str) -> None:
    assert words in (why_unmapped(way) or "")


def test_a_machine_behind_a_router_needs_a_port() -> None:
    assert why_unmapped(Way("192.168.1.5", "8.8.8.8", "192.168.1.1")) is None


def test_the_way_to_this_machine_itself_is_found() -> None:
    assert way_to("http://127.0.0.1:1")[:2] == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEAD + BOMB, "declares entities"),
        (HEAD + b"<r>" * 100, "too large"),
        (HEAD + b"<r>" + b"<a/>" * 5000 + b"</r>", "too large"),
        (HEAD + b"<r>", "is no XML"),
        (HEAD + b"<r></r>", "has no such service"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:22/\r\n\r\n", "sends elsewhere"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "99999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "-5 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not answer"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"", "has no end"),
    ],
)
def test_what_a_hostile_router_says_is_refused(content: bytes, words: str) -> None:
    with saying(content) as address, pytest.raises(RouterError, match=words):
        find_gateway(Way("127.0.0.1", "8.8.8.8", address), Deadline(1.0))


@pytest.mark.parametrize(
    ("content", "pause_s"),
    [(HEAD + b"x" * 4096, 0.0), (b"HTTP/1.1 200 OK\r\n" * 9, 0.0), (b"x", 0.05)],
)
def test_a_router_that_never_ends_is_given_up(content: bytes, pause_s: float) -> None:
    with saying(content, pause_s=pause_s, repeats=True) as address, pytest.raises(RouterError):
        find_gateway(Way("127.0.0.1", "8.8.8.8", address), Deadline(1.0))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:80/", "https://127.0.0.1/", "http://user@127.0.0.1/", "file:///etc/passwd",
        "http://127.0.0.1:99999/", "http://127.0.0.1/a b", "http://127.0.0.1/\r\nX: y", "http://[::1",
        "http://127.0.0.1/" + "a" * 600, "http://127.0.0.1.evil.example/",
    ],
)  # fmt: skip
def test_no_request_goes_to_another_host_than_the_router(url: str) -> None:
    with pytest.raises(RouterError):
        place_of(url, "127.0.0.1")


def test_the_place_of_the_routers_own_address_is_kept_with_its_query() -> None:
    assert place_of("http://127.0.0.1:5000/ctl?x=1", "127.0.0.1") == Place(
        "127.0.0.1", 5000, "/ctl?x=1"
    )


def test_a_description_on_another_host_than_the_router_is_not_read() -> None:
    here = own_loopback()
    with (
        answering(here, "http://127.0.0.9:1/"),
        pytest.raises(RouterError, match="does not answer a search"),
    ):
        find_gateway(Way("127.0.0.1", "8.8.8.8", here), Deadline(10.0))


def test_a_damaged_state_is_begun_anew(machine: Machine, router: Router) -> None:
    (machine.folder / "state.json").write_text("{")
    machine.keep()
    assert json.loads((machine.folder / "state.json").read_text())["mappings"]


@pytest.mark.parametrize("damaged", ["", "{", "[]"])
def test_a_damaged_state_is_read_from_its_copy(
    machine: Machine, router: Router, damaged: str
) -> None:
    machine.keep()
    (machine.folder / "state.json").write_text(damaged)
    router.mappings.clear()
    machine.keeper.renew()
    assert router.mappings == {USUAL: ("127.0.0.1", 22, LIFETIME_S)}
    assert json.loads((machine.folder / "state.json").read_text())["mappings"]


def test_a_state_whose_first_file_is_gone_is_read_from_its_copy(
    machine: Machine, router: Router
) -> None:
    machine.keep()
    (machine.folder / "state.json").unlink()
    router.mappings.clear()
    machine.keeper.renew()
    assert router.mappings == {USUAL: ("127.0.0.1", 22, LIFETIME_S)}


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_a_mapping_whose_state_is_lost_is_made_and_announced_again_and_removed_at_the_end(
    machine: Machine, router: Router, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    started: list[list[str]] = []

    def start(_: str, line: list[str]) -> str:
        started.append(line)
        return "by hand"

    monkeypatch.setattr(timer, "start", start)
    machine.keep()
    for name in ("state.json", "copy.json"):
        if loss == "gone":
            (machine.folder / name).unlink()
        else:
            (machine.folder / name).write_text("{")
    router.mappings.clear()
    machine.announced.clear()
    monkeypatch.setattr(command, "Keeper", lambda _: machine.keeper)
    monkeypatch.setattr("sys.argv", started[-1][3:])  # After the interpreter and its options.
    assert command.main() == 0
    assert router.mappings == {USUAL: ("127.0.0.1", 22, LIFETIME_S)}
    assert len(machine.announced) == 1
    machine.join_file.unlink()
    machine.keeper.renew()
    assert router.mappings == {}
    assert not machine.folder.exists()


def test_a_keeper_without_a_readable_state_ends_only_when_the_machine_has_left(
    machine: Machine, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(timer, "end", ended.append)
    machine.keep()
    for name in ("state.json", "copy.json"):
        (machine.folder / name).write_text("{")
    machine.keeper.renew()
    assert (ended, machine.folder.is_dir()) == ([], True)
    assert "run join.sh again" in machine.said[-1]
    machine.join_file.unlink()
    machine.keeper.renew()
    assert (len(ended), machine.folder.exists()) == (1, False)


def test_cron_has_one_line_and_keeps_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    table.write_text("0 0 * * * owners\n")
    program = tmp_path / "crontab"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -l ] && exec cat {table}\n'
        f"cat >{table}.new && mv {table}.new {table}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(timer, "SYSTEMD", str(tmp_path / "none"))
    monkeypatch.setattr(timer, "UNITS", str(tmp_path))
    monkeypatch.setattr(timer, "_has_cron", lambda: True)
    script = tmp_path / "renews 100%"
    for _ in range(2):
        assert "cron renews it" in timer.start("baseload-upnp", [str(script)])
    lines = table.read_text().splitlines()
    assert lines[0] == "0 0 * * * owners"
    assert len(lines) == 2
    script.write_text(f"#!/bin/sh\necho ran >{tmp_path}/ran\n")
    script.chmod(0o755)
    command = lines[1].removeprefix("*/10 * * * * ").replace("\\%", "%")
    subprocess.run(["sh", "-c", command], check=True)  # As cron runs it.
    assert (tmp_path / "ran").exists()
    timer.end("baseload-upnp")
    assert table.read_text() == "0 0 * * * owners\n"


def test_what_renews_the_mapping_is_on_the_disk_before_it_is_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would else leave units that are empty, and the port would close for good."""
    steps: list[str] = []

    def synced(descriptor: int) -> None:
        steps.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def run(*words: str) -> bool:
        steps.append(words[1])
        return True

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(timer, "_run", run)
    monkeypatch.setattr(timer, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(timer, "UNITS", str(tmp_path))
    timer.start("baseload-upnp", ["renew"])
    units = [".baseload-upnp.service", tmp_path.name, ".baseload-upnp.timer", tmp_path.name]
    assert steps == [*units, "daemon-reload", "enable"]


def test_where_nothing_can_renew_the_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer, "SYSTEMD", str(tmp_path / "none"))
    monkeypatch.setattr(timer, "_has_cron", lambda: False)
    said = timer.start("baseload-upnp", ["python3", "/root/a b"])
    assert "every 10 minutes: python3 '/root/a b'" in said
