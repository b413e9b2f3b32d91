"""The room sees what is wrong with machines that cost money: its zeros mean something."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.chaos.cloud.markets.market import Charge
from tests.chaos.cloud.points import POINTS, Life
from tests.chaos.cloud.round import Seen
from tests.chaos.cloud.runs import SAID
from tests.chaos.cloud.tally import Tally
from tests.chaos.cloud.verdicts import machines_made, machines_refused, seconds_beyond, verdicts

PRICE = 360_000
AT = datetime.fromisoformat("2026-11-22T10:00:00+00:00").timestamp()
BEGAN, ENDED = "2026-11-22T10:00:00+00:00", "2026-11-22T10:00:07.4+00:00"


def charge(name: str = "m-1", number: str = "1", seconds: float = 7.5) -> Charge:
    return Charge(name, number, PRICE, AT, AT + seconds)


def lease(**changes: Any) -> dict[str, Any]:
    return {
        "id": "lea-1", "name": "m-1", "status": "released", "began_at": BEGAN, "ended_at": ENDED,
        "microcredits_per_hour": PRICE, "cost_microcredits": 700, **changes,
    }  # fmt: skip


JOB = {"id": "job-1", "status": "finished", "status_reason": None}
RIGHT = Seen([JOB], {"job-1": SAID}, {"job-1": 1}, {"job-1": 1}, [lease()], [charge()])


def found(seen: Seen) -> set[str]:
    return {what for what, _ in verdicts(seen, job_count=1)}


def test_nothing_is_wrong_with_a_job_that_had_one_machine_which_is_gone_and_charged_alike() -> None:
    assert found(RIGHT) == set()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"left": ["machine m-1: RUNNING"]}, "leaked"),
        ({"touched": ["m-1.of-another"]}, "lost"),
        ({"charges": [charge(), charge(number="2", seconds=0)]}, "doubled"),
        ({"charges": [charge(), charge("m-2", "2")], "leases": [lease()]}, "doubled"),
        ({"charges": [charge("m-2")]}, "doubled"),
        ({"jobs": [JOB, {**JOB, "id": "job-2"}]}, "doubled"),
        ({"begun": {"job-1": 2}}, "doubled"),
        ({"ended": {}}, "lost"),
        ({"jobs": [{**JOB, "status": "failed"}]}, "lost"),
        ({"logs": {"job-1": SAID[:-1]}}, "lost"),
        ({"logs": {}}, "lost"),
        ({"charges": [charge(seconds=8.5)]}, "billed"),
        ({"leases": [lease(cost_microcredits=701)]}, "billed"),
        ({"leases": [lease(began_at=None)]}, "billed"),
        ({"charges": [replace(charge(), price=PRICE + 2)]}, "billed"),
        ({"charges": [replace(charge(), started_at=AT - 5, ended_at=AT + 2.4)]}, "billed"),
    ],
)
def test_what_is_wrong_with_a_round_is_found(change: dict[str, Any], what: str) -> None:
    assert what in found(replace(RIGHT, **change))


def test_a_job_whose_machine_was_preempted_may_have_another_and_begin_again() -> None:
    seen = replace(
        RIGHT,
        charges=[charge(), charge("m-2", "2")],
        leases=[lease(), lease(id="lea-2", name="m-2")],
        begun={"job-1": 2},
        logs={"job-1": "line 1\n" + SAID},
        lost=1,
    )
    assert found(seen) == set()
    assert found(replace(seen, lost=0)) == {"doubled"}
    assert found(replace(seen, logs={"job-1": SAID + "line 1\n"})) == {"lost"}


@pytest.mark.parametrize(("cost", "wrong"), [(700 + 200, set()), (700, {"billed"})])
def test_the_cost_of_a_lease_includes_the_machine_of_its_earlier_offer(
    cost: int, wrong: set[str]
) -> None:
    seen = replace(
        RIGHT,
        charges=[charge(number="1", seconds=2.4), charge(number="2")],
        leases=[lease(cost_microcredits=cost)],
        lost=1,
    )
    assert found(seen) == wrong


def test_a_lease_lasts_beyond_its_machine_only_if_nobody_says_when_that_ended() -> None:
    seen = replace(RIGHT, charges=[charge(seconds=3)])
    assert found(seen) == {"billed"}
    untold = replace(seen, is_end_told=False)
    assert found(untold) == set()
    assert seconds_beyond(untold) == pytest.approx(4.4)
    assert found(replace(untold, charges=[charge(seconds=9)])) == {"billed"}, "it ended too early"
    assert found(replace(untold, leases=[lease(cost_microcredits=701)])) == {"billed"}


def test_a_machine_that_was_refused_is_one_more_that_may_be_made() -> None:
    refused = lease(id="lea-2", name="m-2", status="refused")
    seen = replace(RIGHT, charges=[charge(), charge("m-2", "2")], leases=[lease(), refused])
    assert found(seen) == set()
    assert (machines_made(seen), machines_refused(seen)) == (2, 1)


def test_the_last_line_is_the_sum_of_all_rows() -> None:
    tally = Tally()
    tally.rows["kill-api"].faults, tally.rows["kill-api"].machines = 12, 20
    tally.rows["kill-worker"].faults, tally.rows["kill-worker"].jobs = 3, 20
    tally.wrong("kill-worker", "leaked", "a machine")
    assert tally.last_line() == (
        "sum: 15 faults injected, 20 machines made for 20 jobs, 1 leaked, 0 doubled, "
        "0 jobs lost, 0 billed wrongly"
    )
    assert not tally.is_clean
    assert tally.table().splitlines()[-1].split()[:2] == ["sum", "15"]


def test_each_of_the_twelve_points_is_one_that_a_machine_comes_to() -> None:
    life = [
        Life("reserved", "connecting", "waiting_for_resources", None),
        Life("creating", "connecting", "waiting_for_resources", None),
        Life("creating", "connecting", "waiting_for_resources", "PROVISIONING"),
        Life("waiting_for_ssh", "connecting", "waiting_for_resources", "RUNNING"),
        Life("ready", "connecting", "waiting_for_resources", "RUNNING"),
        Life("ready", "inspecting", "waiting_for_resources", "RUNNING"),
        Life("ready", "preparing", "waiting_for_resources", "RUNNING"),
        Life("ready", "active", "waiting_for_resources", "RUNNING"),
        Life("ready", "active", "provisioning", "RUNNING"),
        Life("ready", "active", "running", "RUNNING"),
        Life("ready", "active", "uploading", "RUNNING"),
        Life("releasing", "removing", "finished", "STOPPING"),
    ]
    reached = [[name for name, is_there in POINTS.items() if is_there(at)] for at in life]
    assert reached == [[name] for name in POINTS]
