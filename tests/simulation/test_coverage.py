"""What a life has met is counted, and what is said to be impossible is not met."""

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from temporalio import workflow

from tests.simulation import impossible
from tests.simulation.batch import play_seed
from tests.simulation.behaviour import Behaviour
from tests.simulation.coverage import Coverage, all_pairs, possible_pairs
from tests.simulation.impossible import IMPOSSIBLE, Pattern, reason_of
from tests.simulation.plan import Act, At, In, JobPlan, Plan
from tests.simulation.simulation import play
from tests.simulation.states import FAULTS, OF_THEIR_OWN, STATUSES, VERBS
from workers.registry import WORKFLOWS
from workflows.contracts.statuses import JobType

PLAN = Plan(
    seed=1,
    jobs=(JobPlan(at_s=10, type=JobType.TRAINING, behaviour=Behaviour(seconds=900)),),
    machines=((1,),),
    has_cloud=False,
    has_storage_node=False,
    microcredits=(10**12, 10**12),
    acts=(),
    hours=0.4,
)


def _met(*acts: Act) -> Coverage:
    coverage = Coverage()
    life = play(replace(PLAN, acts=acts))
    assert life.violations == []
    coverage.add_life(life)
    return coverage


def test_every_lifecycle_has_its_statuses_faults_and_verbs() -> None:
    served = {workflow._Definition.must_from_class(kind).name or "" for kind in WORKFLOWS}
    lifecycles = {name for name in served if name.endswith("Lifecycle")}
    assert lifecycles - OF_THEIR_OWN == set(STATUSES) == set(FAULTS) == set(VERBS)
    assert lifecycles > OF_THEIR_OWN


def test_a_fault_is_counted_with_the_states_that_it_meets() -> None:
    met = _met(
        Act(At(200), "process", "kill", "main", 5),
        Act(At(300), "engine", "away", seconds=20),
        Act(At(400), "world", "process_crashes", "job/0"),
    ).met
    assert met["struck", "JobLifecycle", "running", "kill"] == 1
    assert met["struck", "NodeLifecycle", "active", "away"] == 1
    assert met["struck", "JobLifecycle", "running", "process_crashes"] == 1
    assert met["struck", "NodeLifecycle", "active", "process_crashes"] == 0


def test_an_act_can_wait_for_the_state_of_a_resource() -> None:
    met = _met(
        Act(In("JobLifecycle", "provisioning", 1), "call", "refused"),
        Act(In("JobLifecycle", "running", 1, 5), "world", "machine_unreachable"),
        Act(In("JobLifecycle", "unreachable", 1), "ask", "cancel"),
    ).met
    assert met["struck", "JobLifecycle", "provisioning", "call refused"] == 1
    assert met["struck", "JobLifecycle", "running", "machine_unreachable"] == 1
    assert met["struck", "NodeLifecycle", "active", "machine_unreachable"] == 1
    assert met["message", "JobLifecycle", "unreachable", "cancel"] == 1


def test_an_act_can_wait_for_a_state_of_one_resource_and_meet_what_belongs_to_it() -> None:
    jobs = PLAN.jobs * 2
    acts = (
        Act(In("JobLifecycle", "running", 1, of="job/1"), "world", "process_crashes", is_here=True),
        Act(
            In("JobLifecycle", "uploading", 1, 0.02, "job/1"), "ask", "cancel", "job", is_here=True
        ),
        Act(
            In("JobLifecycle", "uploading", 1, 5, "job/1"), "ask", "maintain", "node", is_here=True
        ),
    )
    life = play(replace(PLAN, jobs=jobs, machines=((2,),), acts=acts))
    assert life.violations == []
    [node] = life.nodes
    first, second = life.jobs
    assert life.requests_of(first) == []
    assert life.requests_of(second) == ["cancel"]
    assert life.requests_of(node)[-1] == "maintain"


def test_an_act_can_wait_for_the_first_state_of_a_resource() -> None:
    met = _met(Act(In("JobLifecycle", "new", 1), "process", "kill", "main", 1)).met
    assert met["struck", "JobLifecycle", "new", "kill"] == 1


def test_nothing_goes_wrong_when_all_is_well_again() -> None:
    act = Act(In("JobLifecycle", "uploading", 1), "call", "refused")
    life = play(replace(PLAN, acts=(act,), hours=0.01))
    assert life.struck == []
    assert life.violations == []


def test_a_node_that_is_added_while_others_work_passes_its_states() -> None:
    met = _met(
        Act(At(100), "ask", "add", "node"),
        Act(In("NodeLifecycle", "inspecting", 1), "call", "refused"),
    ).met
    assert met["struck", "NodeLifecycle", "inspecting", "call refused"] == 1


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in IMPOSSIBLE], ids=" ".join)
def test_what_is_said_to_be_impossible_is_a_pair(pattern: Pattern) -> None:
    assert any(all(map(fnmatchcase, pair, pattern)) for pair in all_pairs())
    assert not any(all(map(fnmatchcase, pair, pattern)) for pair in possible_pairs())


def test_a_pair_that_is_said_to_be_impossible_and_is_met_fails_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = ("message", "JobLifecycle", "waiting_for_resources", "placed")
    reason_of.cache_clear()
    monkeypatch.setattr(impossible, "IMPOSSIBLE", ((pair, "no job is placed"),))
    try:
        failures = play_seed(5, jobs=3).failures
    finally:
        reason_of.cache_clear()
    assert failures == [(5, f"{' × '.join(pair)} was met: no job is placed")]
