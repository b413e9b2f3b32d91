"""The clouds of the simulator: requests, lists, notifications, resources, and their faults."""

from functools import partial
from typing import Any

import pytest

from tests.simulation.outside.clouds.commands import (
    LEASE,
    NAME,
    OTHER_ZONE,
    PROVIDER,
    check,
    comparison,
    creation,
    listening,
    listing,
    machine,
    offer,
    orphan,
    resource,
    subnetwork,
)
from tests.simulation.outside.clouds.stage import Stage
from workflows.contracts.errors import (
    NOT_YET,
    REFUSED,
    REQUEST_REFUSED,
    UNAVAILABLE,
)
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    create_machine,
    describe_machine,
    terminate_orphaned_machine,
)
from workflows.effects.providers import (
    RefreshPrices,
    check_cloud,
    ensure_provider_resource,
    list_owned_machines,
    receive_notifications,
    refresh_prices,
    remove_provider_resource,
)
from workflows.effects.reconciliation import reconcile_machines
from workflows.effects.regions import ensure_region_resource, remove_region_resource

SEEDS = range(1, 13)


# ── faults of all requests ──────────────────────────────────────────────────────────────────


def test_a_hanging_cloud_takes_the_limit_of_an_answer_or_of_the_attempt() -> None:
    outcomes = set()
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clouds.strike("cloud_hangs", PROVIDER)
        began = stage.clock.seconds
        outcome = stage.failure(describe_machine, machine())
        outcomes.add((outcome, round(stage.clock.seconds - began, 3)))
    assert outcomes == {(UNAVAILABLE, 20.0), ("timeout", 60.0)}


def test_a_hanging_cloud_may_make_what_it_was_asked_for() -> None:
    made = 0
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clock.later(0.01, partial(stage.clouds.strike, "cloud_hangs"))
        assert stage.failure(create_machine, creation()) in (UNAVAILABLE, "timeout")
        made += sum(1 for _ in stage.clouds.cloud_machines())
    assert 0 < made < len(SEEDS)


def test_a_refusing_cloud_refuses_for_good_or_for_a_while() -> None:
    stage = Stage()
    stage.clouds.strike("cloud_refuses")
    outcomes = {stage.failure(describe_machine, machine()) for _ in range(40)}
    assert outcomes == {REQUEST_REFUSED, UNAVAILABLE, ""}


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_without_its_key_a_provider_is_refused(is_forgotten: bool) -> None:
    stage = Stage()
    if is_forgotten:
        stage.rows.keys.clear()
    else:
        stage.clouds.strike("key_revoked", PROVIDER)
    assert stage.failure(describe_machine, machine()) == REQUEST_REFUSED
    assert stage.failure(ensure_provider_resource, resource("topic")) == REFUSED
    assert stage.failure(ensure_region_resource, subnetwork()) == REFUSED
    assert stage.failure(receive_notifications, listening()) == REQUEST_REFUSED
    assert not stage.call(check_cloud, check()).passed
    assert stage.call(refresh_prices, RefreshPrices(provider_kind="gcp")).refused


def test_a_fault_ends_by_itself_or_by_healing() -> None:
    stage = Stage()
    stage.clouds.strike("key_revoked", seconds=100)
    stage.clock.pass_time(101)
    assert stage.failure(describe_machine, machine()) == ""
    stage.clouds.strike("key_revoked")
    stage.clock.pass_time(100_000)
    assert stage.failure(describe_machine, machine()) == REQUEST_REFUSED
    stage.clouds.strike("heal")
    assert stage.failure(describe_machine, machine()) == ""


def test_what_is_unknown_changes_nothing() -> None:
    stage = Stage()
    stage.make()
    for what in ("preempted", "deadline", "machine_lost"):
        stage.clouds.strike(what, "nobody")
    stage.clouds.strike("key_revoked", "prv-other")
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING


# ── lists and their comparison with leases ──────────────────────────────────────────────────


def test_a_lagging_list_misses_what_is_new() -> None:
    stage = Stage()
    stage.clouds.strike("lists_lag")
    stage.make()
    names = [stage.call(list_owned_machines, listing()).names for _ in range(20)]
    assert () in names
    stage.clouds.calm()
    assert stage.call(list_owned_machines, listing()).names == (NAME,)


def test_reconciliation_ends_machines_of_ended_leases_alone() -> None:
    stage = Stage()
    stage.make()
    stage.rows.put_lease("ready")
    found = stage.call(reconcile_machines, comparison())
    assert (found.released, found.missing, found.failed) == ((), (), ())
    assert stage.rows.reconciled_at == found.reconciled_at
    stage.rows.put_lease("ready", OTHER_ZONE)
    found = stage.call(reconcile_machines, comparison())
    assert found.missing == (LEASE,)
    assert found.released == (NAME,)
    assert stage.clock.signals == [(f"lease/{LEASE}", "refresh", None)]
    stage.clock.pass_time(120)
    assert stage.call(describe_machine, machine()).state is MachineState.GONE


def test_an_orphan_is_reported_and_ends_when_a_person_asks() -> None:
    stage = Stage()
    spec = MachineSpec(lifetime_s=86400)
    stage.clouds.add_orphan(PROVIDER, "baseload-lea-9", offer(), spec)
    stage.clock.pass_time(30)
    assert stage.call(reconcile_machines, comparison()).unknown == ("baseload-lea-9",)
    assert [name for _, name, _ in stage.clock.signals] == ["orphaned_machines"]
    assert stage.failure(terminate_orphaned_machine, orphan("baseload-lea-9")) == NOT_YET
    stage.clock.pass_time(120)
    seen = stage.call(terminate_orphaned_machine, orphan("baseload-lea-9"))
    assert seen.state is MachineState.GONE


def test_a_machine_that_a_lease_holds_is_no_orphan() -> None:
    stage = Stage()
    stage.make()
    stage.rows.put_lease("ready")
    assert stage.failure(terminate_orphaned_machine, orphan(NAME)) == REFUSED


# ── notifications ───────────────────────────────────────────────────────────────────────────


def preempted(stage: Stage) -> None:
    stage.make()
    stage.rows.put_lease("ready")
    stage.clouds.strike("preempted", NAME)


def test_a_preemption_is_told_to_its_lease_once() -> None:
    stage = Stage()
    preempted(stage)
    received = stage.call(receive_notifications, listening())
    assert [one[:2] for one in stage.clock.signals] == [(f"lease/{LEASE}", "notified")]
    assert received.told >= 1
    assert not received.is_over


def test_a_silent_feed_tells_everything_later() -> None:
    stage = Stage()
    preempted(stage)
    stage.clouds.strike("feed_silent")
    stage.call(receive_notifications, listening())
    assert not stage.clock.signals
    stage.clouds.strike("heal")
    stage.call(receive_notifications, listening())
    assert len(stage.clock.signals) == 1


def test_what_nobody_settles_comes_again() -> None:
    stage = Stage()
    preempted(stage)
    project = stage.clouds._projects.of(PROVIDER)
    stage.clock.pass_time(2000)
    pulled = {each.id for each in project.feed.pull()}
    stage.clock.pass_time(61)
    assert {each.id for each in project.feed.pull()} >= pulled != set()


def test_a_feed_without_its_subscription_fails_until_the_provider_is_removed() -> None:
    stage = Stage()
    stage.call(remove_provider_resource, resource("subscription"))
    assert stage.failure(receive_notifications, listening()) == REQUEST_REFUSED
    stage.rows.status = "removing"
    assert stage.call(receive_notifications, listening()).is_over


# ── resources ───────────────────────────────────────────────────────────────────────────────


def test_resources_need_each_other() -> None:
    stage = Stage(is_ready=False)
    assert stage.failure(ensure_provider_resource, resource("subscription")) == REFUSED
    assert stage.failure(ensure_provider_resource, resource("publisher")) == UNAVAILABLE
    assert stage.failure(ensure_provider_resource, resource("ssh-firewall")) == REFUSED
    assert stage.failure(ensure_region_resource, subnetwork()) == REFUSED


def test_resources_that_are_used_are_not_removed() -> None:
    stage = Stage()
    stage.make()
    assert stage.failure(remove_region_resource, subnetwork()) == REFUSED
    stage.end()
    assert stage.failure(remove_provider_resource, resource("network")) == REFUSED
    assert stage.failure(remove_region_resource, subnetwork()) == ""
    assert stage.failure(remove_region_resource, subnetwork()) == ""
    for name in ("inner-firewall", "ssh-firewall", "network"):
        assert stage.failure(remove_provider_resource, resource(name)) == ""


def test_a_well_project_passes_its_checks_and_has_prices() -> None:
    stage = Stage(is_ready=False)
    assert stage.call(check_cloud, check()).passed
    assert stage.call(refresh_prices, RefreshPrices(provider_kind="gcp")).kept


def test_one_seed_is_one_life() -> None:
    def story(seed: int) -> list[Any]:
        stage = Stage(seed)
        stage.clouds.strike("cloud_forgets")
        outcomes = [stage.failure(create_machine, creation()) for _ in range(3)]
        preempted(stage)
        stage.failure(receive_notifications, listening())
        return [outcomes, stage.clock.seconds, stage.clock.signals]

    assert story(7) == story(7)
