"""The campaign sees what is wrong with a device: its zeros mean something."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.edge.inference import command_of, inferences_of
from tests.chaos.edge.moments import Files
from tests.chaos.edge.tally import Tally
from tests.chaos.edge.verdicts import LOG_BYTES, Seen, Wanted, verdicts, verdicts_of_output

ROW: dict[str, Any] = {
    "status": "active",
    "status_reason": None,
    "inference_status": "running",
    "running": {"revision": 5},
    "requested": {"followed": True},
    "inference_reason": None,
}
RIGHT = Seen(
    inferences=(5,),
    run_ids=frozenset({"dev-0-5"}),
    row=ROW,
    state={"current": {"run_id": "dev-0-5"}, "before": {"run_id": "dev-0-3"}, "trial": None},
    folders=("dev-0-3", "dev-0-5"),
    units=("baseload-device-1.service",),
)


def test_a_device_that_is_as_it_must_be_has_nothing_wrong() -> None:
    assert list(verdicts(Wanted(5), RIGHT)) == []
    failed = {**ROW, "inference_reason": "no line of its log has 'x'"}
    assert list(verdicts(Wanted(5, "no line"), replace(RIGHT, row=failed))) == []
    stopped = {**ROW, "inference_status": "stopped"}
    seen = replace(RIGHT, inferences=(), run_ids=frozenset(), row=stopped)
    assert list(verdicts(Wanted(None), seen)) == []
    kept = replace(RIGHT, folders=(*RIGHT.folders, "dev-0-2"), newest=frozenset({"dev-0-2"}))
    assert list(verdicts(Wanted(5), kept)) == []


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("lost", {"inferences": ()}),
        ("lost", {"inferences": (3,)}),
        ("doubled", {"inferences": (5, 5)}),
        ("doubled", {"inferences": (3, 5)}),
        ("doubled", {"run_ids": frozenset({"dev-0-3", "dev-0-5"})}),
        ("doubled", {"keepers": 2}),
        ("lost", {"keepers": 0}),
        ("doubled", {"watches": 2}),
        ("lost", {"folders": ("dev-0-3",)}),
        ("left", {"folders": (*RIGHT.folders, "dev-0-2")}),
        ("left", {"state": {**RIGHT.state, "trial": {"number": 6}}}),
        ("left", {"units": (*RIGHT.units, "baseload-device-2.service")}),
        ("left", {"parts": ("device/.part-1",)}),
        ("left", {"specs": ("device-specs/dev/6",)}),
        ("left", {"log_bytes": {"dev-0-5": LOG_BYTES + 1}}),
        ("untrue", {"row": {**ROW, "status": "offline"}}),
        ("untrue", {"row": {**ROW, "inference_status": "failed"}}),
        ("untrue", {"row": {**ROW, "running": {"revision": 3}}}),
        ("untrue", {"row": {**ROW, "requested": {"followed": False}}}),
        ("untrue", {"row": {**ROW, "inference_reason": "of an earlier one"}}),
    ],
)
def test_each_thing_that_is_wrong_is_seen(what: str, changes: dict[str, Any]) -> None:
    assert [found for found, _ in verdicts(Wanted(5), replace(RIGHT, **changes))] == [what]


def test_output_that_is_not_on_the_share_is_lost() -> None:
    stored = [("a-b-1", "1\n"), ("a-b-2", "2\n"), ("c-d-1", "1\n"), ("a-b-3", "")]
    assert list(verdicts_of_output({"a-b": 2, "c-d": 1}, stored)) == []
    assert len(list(verdicts_of_output({"a-b": 2, "c-d": 2}, stored))) == 1
    assert {what for what, _ in verdicts_of_output({"a-b": 3}, stored)} == {"lost"}
    assert [what for what, _ in verdicts_of_output({"e-f": 1}, stored)] == ["lost"]
    assert [what for what, _ in verdicts_of_output({}, [(".baseload-part-1a", "")])] == ["left"]


def test_an_inference_is_known_by_its_number() -> None:
    last = command_of(7).splitlines()[-1].removeprefix("exec ")
    assert inferences_of([last, "sleep 2", f"sh -c {last}", "sleep 61003"]) == [7, 3]


@pytest.mark.parametrize(
    ("phase", "change"),
    [
        ("unknown", lambda root: None),
        ("staging", lambda root: (root / "runs/dev-x-0-6-tag").mkdir()),
        ("staged", lambda root: write(root / "runs/dev-x-0-6-tag/spec.json", {})),
        ("asked", lambda root: write(root / "device/asked.json", {"number": 6, "kind": "switch"})),
        ("checking", lambda root: write_state(root, {"number": 6, "phase": "checking"}, 5)),
        ("done", lambda root: write_state(root, None, 6)),
    ],
)
def test_the_phase_of_an_assignment_is_read_from_the_disk(
    tmp_path: Path, phase: str, change: Callable[[Path], None]
) -> None:
    (tmp_path / "runs").mkdir()
    write_state(tmp_path, None, 5)
    change(tmp_path)
    assert Files(tmp_path, 5).phase() == phase


def write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_state(root: Path, trial: dict[str, Any] | None, done: int) -> None:
    write(root / "device/state.json", {"trial": trial, "done": done, "status": "running"})


def test_the_table_counts_and_a_fault_that_never_struck_is_said() -> None:
    tally = Tally()
    tally.rows["a"].faults, tally.rows["a"].devices = 2, 4
    tally.wrong("a", "lost", "gone")
    *_, sums = tally.table(7.0).splitlines()
    assert sums == "| sum | 2 | 4 | 1 | 0 | 0 | 0 | 7 |"
    tally.check_struck(["a", "b"])
    assert tally.found == ["lost: a: gone", "never: b: has not struck"]
