"""The keeper of a device whose disk is full, and whose machine has no memory for a moment."""

import errno
from typing import Any

import pytest

from activities.agent.devices import starting, unit
from activities.agent.devices.keeper import Keeper
from activities.agent.devices.state import FAILED, RUNNING, Store, fresh
from activities.agent.host import processes
from tests.activities.agent.devices.conftest import MakeRevision

LOOPS = 20
MEDIA = "activities.agent.devices.media.Media.keep"


@pytest.fixture
def keeper(store: Store, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """A machine that has just booted, and ran a revision before."""
    revision = make_revision(1, output={"datastore": {}, "path": "shop-7"})
    ran = {"number": 1, "run_id": revision.run_id}
    store.keep({**fresh(), "done": 1, "current": ran, "status": RUNNING, "boot_id": "before"})
    found = Keeper(store)
    looped: list[int] = []

    def select(*_: Any) -> tuple[list[int], list[int], list[int]]:
        looped.append(1)
        found.is_ending = len(looped) >= LOOPS
        return [], [], []

    monkeypatch.setattr("select.select", select)
    monkeypatch.setattr(found, "_listen", lambda: None)
    monkeypatch.setattr(unit, "forget_other_copies", lambda _: None)
    return found


class Runs:
    """What runs, and has not ended."""

    def __init__(self, revision: Any) -> None:
        self.revision, self.is_over = revision, False

    def reap(self) -> bool:
        return False

    def end(self) -> None:
        self.is_over = True


def test_a_full_disk_keeps_no_device_from_starting_what_it_runs(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    stored: list[int] = []

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def start(revision: Any) -> Runs:
        if not keeper.is_ending:  # Not only when the machine goes down again.
            started.append(revision)
        return Runs(revision)

    monkeypatch.setattr(keeper.store, "keep", full)
    monkeypatch.setattr(starting, "start", start)
    monkeypatch.setattr(keeper.copier, "keep", lambda: stored.append(1))
    keeper.main()
    assert (len(started), bool(stored)) == (1, True), "nor from storing what fills the disk"


def test_an_exit_that_a_full_disk_does_not_take_is_written_when_there_is_room(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next request would find a keeper that was lost, and start the command again."""
    tries: list[int] = []
    keep = keeper.store.keep

    def full(state: dict[str, Any]) -> None:
        tries.append(1)
        if state["status"] == FAILED and len(tries) < LOOPS // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(state)

    class Exits(Runs):
        def reap(self) -> bool:
            return True

        def how_it_ended(self) -> tuple[int, str]:
            return 3, "no camera"

    monkeypatch.setattr(keeper.store, "keep", full)
    monkeypatch.setattr(keeper.copier, "has_work", lambda: False)
    monkeypatch.setattr(starting, "start", Exits)
    keeper.main()
    state = keeper.store.state()
    assert (state["status"], state["exit_code"], state["reason"]) == (FAILED, 3, "no camera")


def test_a_revision_that_has_proved_itself_runs_on_where_an_earlier_one_cannot_be_removed(
    keeper: Keeper, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = make_revision(2).run_id
    keeper.store.ask({"number": 2, "kind": "switch", "run_id": newer, "health": {"up_s": 0}})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Up(Runs):
        started_s = 0.0

        def is_up(self) -> bool:
            return True

    monkeypatch.setattr(starting, "start", Up)
    monkeypatch.setattr("activities.agent.devices.keeper.tidy", full)
    keeper.main()
    state = keeper.store.state()
    assert (state["current"]["run_id"], state["status"]) == (newer, RUNNING)


def test_a_command_that_is_to_stop_is_not_started_by_the_boot_before(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power was cut when the request was written, and before the keeper had seen it."""
    keeper.store.ask({"number": 2, "kind": "stop"})
    started: list[Any] = []
    monkeypatch.setattr(starting, "start", started.append)
    keeper.main()
    assert (started, keeper.store.state()["status"]) == ([], "stopped")


def test_a_machine_without_memory_for_a_child_keeps_what_it_runs(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory() -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(starting, "start", Runs)
    monkeypatch.setattr("os.fork", no_memory)
    keeper.main()
    assert (keeper.store.state()["status"], keeper.copier.is_there) == ("running", False)


def test_an_error_beside_what_runs_ends_neither_it_nor_its_keeper(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a camera without a name")

    monkeypatch.setattr(starting, "start", Runs)
    monkeypatch.setattr(MEDIA, broken)
    monkeypatch.setattr(keeper.copier, "keep", broken)
    keeper.main()
    said = capsys.readouterr().err
    assert keeper.store.state()["status"] == "running"
    assert said.count("ValueError: a camera without a name") == 1, "each error once"


def test_a_keeper_that_is_started_again_starts_nothing_that_has_exited_by_itself(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"status": FAILED, "exit_code": 3, "boot_id": processes.boot_id()}
    keeper.store.keep({**keeper.store.state(), **ended})
    keeper.state = keeper.store.state()
    started: list[Any] = []
    monkeypatch.setattr(starting, "start", started.append)
    keeper.main()
    assert (started, keeper.store.state()["status"]) == ([], "failed")
