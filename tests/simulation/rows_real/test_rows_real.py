"""The real rows in virtual time, and the model of rows beside them."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.db import ids
from activities.db import session as database_session
from activities.settings import settings
from activities.temporal import client as client_module
from tests.simulation.contracts import Outside, Refused, Rows, Verb
from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.scripted import ATTEMPT, Scripted, submission
from tests.simulation.rows_model.temporal_double import BEGINS_AT, TemporalDouble
from tests.simulation.rows_real import RealRows
from workflows.contracts.billing import BillingRequest
from workflows.contracts.jobs import EndRequest, JobRequest
from workflows.contracts.nodes import RunSeen
from workflows.effects.billing import BillingDone, PostUsage, TellJobToEnd
from workflows.effects.jobs import DiscardRunSpecs, RemoveStored, SealRunSpecs
from workflows.effects.nodes import BillOrphanedRuns, FindNodeRuns
from workflows.effects.placement import PlanPlacements, WithdrawAllocations
from workflows.effects.reconciliation import RelayOutbox, RestartLostWorkflows

MINION = "SHA256:" + "a" * 43
OTHER_MINION = "SHA256:" + "b" * 43
_ID = re.compile(r"\b(acc|prj|usr|prv|reg|nod|job|lea|alc|req)-[0-9a-hjkmnp-tv-z]+")


class Store:
    """The object store of `Outside`, as far as rows use it."""

    def __init__(self) -> None:
        self.run_specs: dict[tuple[str, int], dict[int, int]] = {}
        self.discarded: list[tuple[str, str, int | None]] = []

    def keep_run_specs(
        self, job_id: str, attempt: int, ports: dict[int, int] | None = None
    ) -> None:
        self.run_specs[job_id, attempt] = ports or {}

    def discard(self, job_id: str, what: str, attempt: int | None = None) -> None:
        if (job_id, "everything", None) not in self.discarded:  # Else nothing is left.
            self.discarded.append((job_id, what, attempt))

    def jobs_with_snapshots(self) -> Iterable[str]:
        return []


class Life(Scripted):
    """store: what the rows have asked the object store for."""

    store: Store


def real_life(seed: int = 0) -> Life:
    temporal, store = TemporalDouble(), Store()
    temporal.random = Random(seed)
    life = Life(RealRows(temporal, cast("Outside", store)), temporal)
    life.store = store
    return life


def modelled_life() -> Life:
    temporal, store = TemporalDouble(), Store()
    life = Life(ModelRows(temporal, cast("Outside", store)), temporal)
    life.store = store
    return life


@pytest.fixture
def life() -> Iterator[Life]:
    found = real_life()
    yield found
    assert found.rows.violations() == []
    assert found.rows.imbalance() == 0
    found.rows.close()


def status_of(rows: Rows, job_id: str) -> str:
    return next(job.status for job in rows.jobs() if job.job_id == job_id)


def real(script: Scripted) -> RealRows:
    assert isinstance(script.rows, RealRows)
    return script.rows


# ── the same story, told by the rows and by their model ─────────────────────────────────────


def a_job_runs_and_is_billed(script: Scripted) -> None:
    script.add_node(2, MINION)
    job_id = script.submit(submission(gpus=1, workers=2))
    script.plan()
    assignments = script.run(job_id).assignments
    script.call("seal_run_specs", SealRunSpecs(job_id=job_id, attempt=1, assignments=assignments))
    bill = BillingRequest(
        job_id=job_id,
        account_id=script.account,
        attempt=1,
        started_at=script.temporal.now(),
        workers=(),
    )
    script.call("begin_billing", bill)
    script.call("begin_billing", bill)
    with pytest.raises(ApplicationError):
        script.call("begin_billing", bill.model_copy(update={"attempt": 2}))
    script.temporal.play(5400)
    usages = (script.usage(job_id, 4000), script.usage(job_id, 5000, worker=1))
    script.call("post_usage", PostUsage(usages=usages))
    script.call("post_usage", PostUsage(usages=usages))
    script.finish(job_id)
    script.call("discard_run_specs", DiscardRunSpecs(job_id=job_id, attempt=1))
    script.call("end_billing", BillingDone(job_id=job_id, attempt=1))
    script.dispatch()
    script.rows.ask(job_id, Verb.REMOVE)
    script.temporal.end(f"job/{job_id}")
    script.dispatch()
    script.call("remove_stored", RemoveStored(job_id=job_id))


def jobs_are_ended_by_people(script: Scripted) -> None:
    node_id = script.add_node(1, MINION)
    first, second = script.submit(), script.submit()
    notebook = script.submit(submission(type="notebook", port=8888))
    script.plan()
    for job_id, verb in ((first, Verb.CANCEL), (second, Verb.DISCARD), (notebook, Verb.STOP)):
        script.rows.ask(job_id, verb)
        script.dispatch()
    for wrong in (Verb.STOP, Verb.START, Verb.REMOVE, Verb.REBOOT):
        with pytest.raises(Refused):
            script.rows.ask(first, wrong)
    with pytest.raises(Refused):
        script.rows.ask(node_id, Verb.REMOVE)
    script.finish(first, "canceled")
    assert script.rows.ask(first, Verb.RESUBMIT) is not None
    script.rows.ask(node_id, Verb.MAINTAIN)
    script.rows.ask(node_id, Verb.FORCE_REMOVE)
    script.dispatch()


def a_node_is_lost_with_its_run(script: Scripted) -> None:
    node_id = script.add_node(1, MINION)
    job_id, next_id = script.submit(), script.submit()
    script.plan()
    held = script.run(job_id).allocation_ids
    script.temporal.play(100)
    script.finish(job_id, "failed", leaving=held)
    script.dispatch()
    script.call("find_node_runs", FindNodeRuns(node_id=node_id))
    seen = RunSeen(run_id=f"{job_id}-0-1", job_id=job_id, worker=0, attempt=1, elapsed_s=50)
    script.call("bill_orphaned_runs", BillOrphanedRuns(node_id=node_id, runs=(seen,)))
    script.plan()
    asked = WithdrawAllocations(node_id=node_id, reason="no ssh", at=script.temporal.now())
    assert script.call("withdraw_allocations", asked).job_ids == (next_id,)
    script.dispatch()


def temporal_is_away_and_then_forgets(script: Scripted) -> None:
    script.add_node(1, MINION)
    job_id, waiting_id = script.submit(), script.submit()
    script.plan()
    script.run(job_id)
    script.temporal.answers = False
    script.rows.ask(job_id, Verb.CANCEL)
    script.dispatch()
    with pytest.raises(ApplicationError):
        script.call("restart_lost_workflows", RestartLostWorkflows())
    script.temporal.answers = True
    for _ in range(4):
        script.temporal.play(30)
        script.call("relay_outbox", RelayOutbox())
    show_all(script)
    script.temporal.end(f"job/{job_id}", "failed")
    script.temporal.end(f"job/{waiting_id}", "terminated", by="person")
    script.temporal.play(600)
    script.call("restart_lost_workflows", RestartLostWorkflows())
    script.dispatch()


def machines_of_a_cloud_are_rented(script: Scripted) -> None:
    provider_id = script.rows.add_provider(script.account, "gcp")
    script.dispatch()
    script.step(provider_id, "ready")
    region_id = script.rows.add_region(provider_id, zone="us-central1-a")
    with pytest.raises(Refused):
        script.rows.add_region(provider_id, zone="us-central1-b")
    script.dispatch()
    script.step(region_id, "healthy")
    asked = {"gpus": "T4:1", "memory_gib": 1}
    job_id = script.submit(submission(resources=asked, placement={"providers": ["gcp"]}))
    script.plan()
    script.dispatch()
    script.rows.ask(job_id, Verb.CANCEL)
    script.finish(job_id, "canceled")
    script.dispatch()
    assert script.rows.has_key(provider_id)
    assert list(script.rows.ready_providers("gcp")) == [provider_id]
    script.rows.keep_reconciled(provider_id, script.temporal.now())


STORIES: tuple[Callable[[Scripted], None], ...] = (
    a_job_runs_and_is_billed,
    jobs_are_ended_by_people,
    a_node_is_lost_with_its_run,
    temporal_is_away_and_then_forgets,
    machines_of_a_cloud_are_rented,
)


def show_all(script: Scripted) -> None:
    """Each workflow shows the status of its row, as lifecycles do."""
    rows = script.rows
    shown = {f"node/{one.node_id}": one.status for one in rows.nodes()}
    shown |= {f"job/{one.job_id}": one.status for one in rows.jobs()}
    shown |= {f"provider/{one.resource_id}": one.status for one in rows.providers()}
    shown |= {f"region/{one.resource_id}": one.status for one in rows.regions()}
    for workflow_id, status in shown.items():
        script.temporal.shows(workflow_id, status)


def told(script: Life) -> list[str]:
    """What the rows show and what Temporal was asked, with ids by the order in which they come."""
    rows, known = script.rows, dict[str, str]()

    def number(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"{found[1]}-{len(known)}")

    jobs = [(one.job_id, one.status, one.attempt, one.is_open, one.run_ids) for one in rows.jobs()]
    nodes = [(one.node_id, one.status, f"{one.wanted}", one.host) for one in rows.nodes()]
    held = [(one.job_id, one.run_id, one.node_id, one.gpu_indices) for one in rows.allocations()]
    # Wakes of placement and the relay of requests come beside each other, in any order.
    calls = [(whom, what, name) for what, whom, name, _ in script.temporal.calls]
    calls.sort(key=lambda call: call[0] == "placement")
    lines: list[Any] = [
        script.account, script.provider, script.region, *script.sequences, *jobs, *nodes,
        *rows.providers(), *rows.regions(), *sorted(held, key=str), *rows.usage(),
        *calls,
        rows.waiting_requests(), rows.imbalance(), rows.violations(),
        *script.store.run_specs.items(), *script.store.discarded,
    ]  # fmt: skip
    return [_ID.sub(number, str(line)) for line in lines]


@pytest.mark.parametrize("story", STORIES)
def test_the_model_tells_the_same_story_as_the_rows(story: Callable[[Scripted], None]) -> None:
    scripts = (real_life(), modelled_life())
    for script in scripts:
        story(script)
    as_it_is, as_modelled = map(told, scripts)
    for script in scripts:
        script.rows.close()
    assert as_modelled == as_it_is


# ── one life beside another ─────────────────────────────────────────────────────────────────


def test_a_seed_played_twice_leaves_the_same_rows() -> None:
    dumps = []
    for seed in (7, 7, 8):
        script = real_life(seed)
        a_job_runs_and_is_billed(script)
        dumps.append(real(script).rows())
        script.rows.close()
    first, second, other = dumps
    assert first == second
    assert first != other


def test_two_lives_that_are_open_at_once_do_not_see_each_other() -> None:
    first, second = real_life(7), real_life(7)
    job_id = first.submit()
    assert list(second.rows.jobs()) == []
    assert second.submit() == job_id, "both have drawn the same ids"
    second.step(job_id, "canceled")
    assert status_of(first.rows, job_id) == "waiting_for_resources"
    first.rows.close()
    assert status_of(second.rows, job_id) == "canceled"
    second.rows.close()


def test_an_interrupted_life_leaves_the_rows_that_it_leaves_alone() -> None:
    alone = real_life(7)
    a_node_is_lost_with_its_run(alone)
    undisturbed = real(alone).rows()
    alone.rows.close()
    script, other = real_life(7), real_life(8)
    for effect in ("record", "plan_placements", "notify_placed_jobs"):
        _interrupt(script, effect, by=other)
    a_node_is_lost_with_its_run(script)
    assert real(script).rows() == undisturbed
    script.rows.close()
    other.rows.close()


def _interrupt(script: Scripted, effect: str, *, by: Scripted) -> None:
    """Let another life do something before each call of an effect."""
    handler, effects = script.rows.effects[effect], dict(script.rows.effects)

    def handle(attempt: Any, command: Any) -> Any:
        by.submit(submission(gpus=0))
        return handler(attempt, command)

    real(script).effects = effects | {effect: handle}


def test_close_gives_back_what_the_process_had() -> None:
    places = ((client_module, "_client"), (client_module, "_loop"), (ids, "secrets"))
    before = [getattr(*place) for place in places]
    settings_before = settings()
    script = real_life()
    assert database_session.database().url.endswith("uri=true")
    assert [getattr(*place) is was for place, was in zip(places, before, strict=True)] == [
        False
    ] * 3
    assert settings() is not settings_before
    script.rows.close()
    assert [getattr(*place) for place in places] == before
    assert settings() == settings_before
    assert datetime.now(UTC) - BEGINS_AT > timedelta(days=1) or datetime.now(UTC) < BEGINS_AT


def test_rows_are_written_at_the_virtual_time(life: Life) -> None:
    life.temporal.play(86_400 * 365)
    job_id = life.submit()
    created_at = next(job.created_at for job in life.rows.jobs() if job.job_id == job_id)
    assert abs(created_at - life.temporal.now()) < timedelta(seconds=5)


# ── processes that die, calls that fail ─────────────────────────────────────────────────────


class DiedError(Exception):
    """The process has died."""


def dies() -> None:
    raise DiedError


def test_a_process_that_dies_after_its_commit_has_committed_and_told_nobody(
    life: Life,
) -> None:
    node_id, job_id = life.add_node(1, MINION), life.submit()
    life.plan()
    held = life.run(job_id).allocation_ids
    real(life).between = dies
    with pytest.raises(DiedError):
        life.finish(job_id, "failed", leaving=held)
    real(life).between = lambda: None
    assert status_of(life.rows, job_id) == "failed"
    life.temporal.play(10)
    assert "refresh" not in life.temporal.signals(f"node/{node_id}")
    life.call("relay_outbox", RelayOutbox())
    assert "refresh" in life.temporal.signals(f"node/{node_id}")


def test_a_process_that_dies_between_a_delivery_and_its_note_delivers_once(life: Life) -> None:
    job_id = life.submit()
    life.rows.ask(job_id, Verb.CANCEL)
    real(life).between = dies
    with pytest.raises(DiedError):
        life.rows.relay()
    real(life).between = lambda: None
    assert life.temporal.signals(f"job/{job_id}") == ["cancel"]
    assert life.rows.waiting_requests() == 1
    life.temporal.play(10)
    life.call("relay_outbox", RelayOutbox())
    assert life.rows.waiting_requests() == 0
    assert life.temporal.signals(f"job/{job_id}") == ["cancel"]


def test_after_a_death_the_next_effect_finds_a_process_that_lives(life: Life) -> None:
    life.add_node(2, MINION)
    jobs = [life.submit() for _ in range(2)]
    life.call("plan_placements", PlanPlacements())
    real(life).between = dies
    with pytest.raises(DiedError):
        life.plan()
    real(life).between = lambda: None
    life.plan()
    assert [life.temporal.signals(f"job/{job}").count("placed") >= 1 for job in jobs] == [True] * 2


def test_a_repeated_attempt_sends_its_signal_once(life: Life) -> None:
    job_id = life.submit()
    command = TellJobToEnd(job_id=job_id, request=EndRequest(reason="no credits"))
    for _ in range(2):
        life.call("tell_job_to_end", command, ATTEMPT)
    assert life.temporal.signals(f"job/{job_id}") == ["stop"]


def test_a_call_that_temporal_does_not_answer_fails_as_the_sdk_fails_it(life: Life) -> None:
    job_id = life.submit()
    command = TellJobToEnd(job_id=job_id, request=EndRequest(reason="no credits"))
    life.temporal.answers = False
    with pytest.raises(ApplicationError) as failure:
        life.call("tell_job_to_end", command)
    assert (failure.value.type, failure.value.non_retryable) == ("RPCError", False)


def test_a_lost_job_is_started_again_with_what_it_has_not_heard(life: Life) -> None:
    job_id = life.submit()
    life.temporal.play(60)
    show_all(life)
    life.rows.ask(job_id, Verb.CANCEL)
    life.dispatch()
    life.temporal.end(f"job/{job_id}", "failed")
    life.temporal.play(60)
    found = life.call("restart_lost_workflows", RestartLostWorkflows())
    life.dispatch()
    assert found.restarted == (job_id,)
    request = life.temporal.workflows[f"job/{job_id}"].request
    assert isinstance(request, JobRequest)
    assert request.resumed_from is not None
    assert life.temporal.signals(f"job/{job_id}") == ["cancel"]


def test_signals_carry_the_models_that_workflows_read(life: Life) -> None:
    job_id = life.submit()
    life.rows.ask(job_id, Verb.DISCARD)
    life.rows.relay()
    ((name, argument),) = life.temporal.workflows[f"job/{job_id}"].signals
    assert name == "cancel"
    assert isinstance(argument, EndRequest)
    assert argument.discards


# ── what is looked for ──────────────────────────────────────────────────────────────────────


def test_placement_is_idle_until_something_is_written_or_time_changes_it(life: Life) -> None:
    life.submit()
    assert not life.rows.is_placement_idle()
    life.plan()
    assert life.rows.is_placement_idle()
    life.temporal.play(3600)
    assert not life.rows.is_placement_idle(), "the job has waited too long to be passed over"
    life.plan()
    assert life.rows.is_placement_idle()
    life.add_node(1, MINION)
    assert not life.rows.is_placement_idle()


def test_a_machine_is_found_where_it_says_it_is(life: Life) -> None:
    node_id = life.rows.add_node(life.region, OTHER_MINION)
    life.dispatch()
    assert [node.host for node in life.rows.nodes()] == [None]
    life.rows.announce(OTHER_MINION, "10.0.0.9")
    life.dispatch()
    assert life.temporal.signals(f"node/{node_id}") == ["wake"]


def test_a_job_that_waits_says_why(life: Life) -> None:
    life.submit(submission(gpus=4))
    life.plan()
    assert [bool(job.status_reason) for job in life.rows.jobs()] == [True]


@pytest.mark.parametrize(
    ("spoiling", "found"),
    [
        ("UPDATE allocations SET node_id = (SELECT max(id) FROM nodes)", "GPU 0"),
        ("UPDATE nodes SET reserved_cpu_count = reserved_cpu_count + 1", "reserves"),
        ("UPDATE ledger_accounts SET balance_microcredits = balance_microcredits + 1", "balance"),
        ("UPDATE jobs SET charged_microcredits = 5", "charged"),
        ("UPDATE jobs SET sequence = 0", "later step"),
        ("UPDATE allocations SET state = 'gone'", "gone"),
    ],
)
def test_what_rows_must_never_hold_is_found(spoiling: str, found: str) -> None:
    life = real_life()
    life.add_node(1, MINION)
    life.add_node(1, OTHER_MINION)
    for job_id in [life.submit() for _ in range(2)]:
        life.step(job_id, "waiting_for_resources", events=["job.waiting-for-resources"])
    life.plan()
    assert life.rows.violations() == []
    raw = real(life)._tenant.house.raw
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.execute(spoiling)
    assert any(found in line for line in life.rows.violations())
    life.rows.close()
