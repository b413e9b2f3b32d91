"""What a keeper does when it begins, without a command to start."""

from pathlib import Path

import pytest

from activities.agent.contents import store as contents_store
from activities.agent.devices import keeper, spool
from activities.agent.devices.keeper import Keeper
from activities.agent.devices.state import Store, fresh
from tests.activities.agent.devices.conftest import MakeRevision


@pytest.fixture(autouse=True)
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers of signals are those of this process."""
    monkeypatch.setattr(Keeper, "_listen", lambda _: None)


def test_a_keeper_removes_what_the_one_before_had_no_time_to_remove(
    store: Store, make_revision: MakeRevision
) -> None:
    ids = [make_revision(number).run_id for number in (1, 2, 3, 4)]
    named = [{"number": number, "run_id": run_id} for number, run_id in enumerate(ids, 1)]
    store.keep({**fresh(), "done": 3, "current": named[2], "before": named[1]})
    store.ask({**named[2], "kind": "switch"})
    Keeper(store).main()
    assert store.folders.run_ids() == ids[1:]  # The newest was staged, and not asked for yet.


def test_a_keeper_removes_what_a_power_cut_has_broken_off(
    store: Store, make_revision: MakeRevision
) -> None:
    run_id = make_revision(1).run_id
    store.keep({**fresh(), "done": 1, "current": {"number": 1, "run_id": run_id}})
    kept = sorted(path.name for path in Path(store.path).iterdir())
    root = Path(store.folders.root)
    broken = [
        *(Path(store.path) / name for name in (".part-1a", ".agent-2b")),
        Path(store.folders.run(run_id).at(".part-5e")),
        root / "runs/.removed-dev-test-0-9-tag.3c/run",
        root / "contents/.removed-4d/content",
    ]
    for path in broken:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    Keeper(store).main()
    assert not any(path.exists() for path in broken)
    assert sorted(path.name for path in Path(store.path).iterdir()) == sorted([*kept, "lock"])
    assert sorted(path.name for path in (root / "runs").iterdir()) == [run_id]


def test_what_has_arrived_for_a_revision_goes_with_it(
    store: Store, make_revision: MakeRevision
) -> None:
    revisions = [make_revision(number) for number in (1, 2, 3)]
    named = [{"number": number, "run_id": one.run_id} for number, one in enumerate(revisions, 1)]
    store.keep({**fresh(), "done": 2, "current": named[1]})
    store.ask({**named[1], "kind": "switch"})
    shas = ["1" * 64, "3" * 64]
    contents_store.need(revisions[0], shas[:1])
    contents_store.need(revisions[2], shas[1:])
    arriving = [Path(contents_store.arriving(store.folders, sha)) for sha in shas]
    for path in arriving:
        path.mkdir(parents=True)
    Keeper(store).main()
    assert store.folders.run_ids() == [one.run_id for one in revisions[1:]]
    assert [path.exists() for path in arriving] == [False, True]  # The newest is being staged.


def test_a_revision_that_was_kept_for_its_output_goes_when_that_is_stored(
    store: Store, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [make_revision(number).run_id for number in (1, 2, 3)]
    named = [{"number": number, "run_id": run_id} for number, run_id in enumerate(ids, 1)]
    failed = {"done": 3, "failed": "it was bad", "current": named[1], "before": named[0]}
    store.keep({**fresh(), **failed, "status": "stopped"})
    store.ask({**named[2], "kind": "switch"})
    left = {ids[2]}
    monkeypatch.setattr(spool, "waiting", lambda each: [each] if each.run_id in left else [])
    monkeypatch.setattr(Keeper, "_pause", lambda *_: left.clear())  # The copier has stored it.
    kept: list[list[str]] = []
    monkeypatch.setattr(keeper, "finish_removals", lambda *_: kept.append(store.folders.run_ids()))
    Keeper(store).main()
    assert kept == [ids]
    assert store.folders.run_ids() == ids[:2]
