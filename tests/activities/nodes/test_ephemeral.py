"""Nodes that were made for one job: it is told when they are there, they are dismissed after it."""

import pytest
from sqlmodel import Session, select

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.reconciliation import _dismiss_idle
from activities.lifecycles.record import record
from activities.nodes.ephemeral import dismiss_ephemeral
from activities.placement.allocations import release_allocations
from activities.placement.planning import _not_notified, find_placement
from tests.activities.cloud_rows import add_lease
from tests.activities.placement.rows import add_gpu_node, add_waiting_job, assert_books_agree
from tests.activities.rows import NOW, add_payer, add_region, allocate
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.statuses import JobStatus, NodeType
from workflows.effects.jobs import FindPlacement


def made_for_a_job(session: Session, *names: str) -> tuple[tables.Job, list[tables.Node]]:
    """A job that holds one GPU on each of so many ephemeral nodes of one region."""
    account = add_payer(session)
    region = add_region(session, account)
    job = add_waiting_job(session, account, workers=len(names))
    nodes = [add_gpu_node(session, region, name) for name in names]
    for worker, node in reversed(list(enumerate(nodes))):
        node.type = NodeType.EPHEMERAL
        allocation = allocate(session, job, node, gpu=0)
        allocation.worker = worker
        session.flush()
    return job, nodes


def removals_asked(session: Session) -> list[str]:
    asked = session.exec(select(tables.OutboxRow).where(tables.OutboxRow.verb == "remove"))
    return sorted(request.resource_id for request in asked)


def test_nodes_made_for_a_job_are_asked_to_leave_with_its_release(migrated: Database) -> None:
    with migrated.write() as session:
        job, nodes = made_for_a_job(session, "one", "two")
        requests = release_allocations(session, job.id, NOW)
        assert len(requests) == 2
        assert release_allocations(session, job.id, NOW) == []
        assert removals_asked(session) == sorted(node.id for node in nodes)
        (first, *_) = session.exec(select(tables.OutboxRow))
        assert first.argument == {
            "force": True, "requested_by": "the end of its job", "reschedules": True,
        }  # fmt: skip
        assert_books_agree(session)


@pytest.mark.parametrize("changed", [{"type": "permanent"}, {"status": "removing"}])
def test_who_is_no_guest_of_one_job_or_leaves_already_is_not_asked(
    migrated: Database, changed: dict[str, str]
) -> None:
    with migrated.write() as session:
        job, (node,) = made_for_a_job(session, "one")
        node.sqlmodel_update(changed)
        session.flush()
        assert release_allocations(session, job.id, NOW) == []
        assert removals_asked(session) == []


def test_a_node_that_still_holds_its_job_is_not_dismissed(migrated: Database) -> None:
    with migrated.write() as session:
        _, (node,) = made_for_a_job(session, "one")
        assert dismiss_ephemeral(session, [node.id], NOW) == []
        assert removals_asked(session) == []


@pytest.mark.parametrize("changed", [{"status": "preparing"}, {"host": None}])
def test_a_job_is_told_only_when_every_one_of_its_nodes_is_there(
    migrated: Database, changed: dict[str, str | None]
) -> None:
    with migrated.write() as session:
        job, (_, late) = made_for_a_job(session, "one", "two")
        late.sqlmodel_update(changed)
    asked = FindPlacement(job_id=job.id, attempt=1)
    assert _not_notified(10) == []
    assert find_placement(asked).placement is None
    with migrated.write() as session:
        session.get_one(tables.Node, late.id).sqlmodel_update({"status": "active", "host": "h"})
    (placement,) = _not_notified(10)
    assert placement == find_placement(asked).placement
    assert [place.node.node_id for place in placement.assignments][1] == late.id


def test_a_worker_says_which_lease_its_machine_is_of(migrated: Database) -> None:
    with migrated.write() as session:
        job, (node,) = made_for_a_job(session, "one")
        node.machine = {"offers": []}
        region = session.get_one(tables.Region, node.region_id)
        for lease_id, status in (("lea-old", "released"), ("lea-now", "ready")):
            add_lease(session, region, node.id, id=lease_id, name=lease_id, status=status)
    placement = find_placement(FindPlacement(job_id=job.id, attempt=1)).placement
    assert placement is not None
    assert [place.lease_id for place in placement.assignments] == ["lea-now"]


def test_the_sweep_dismisses_a_node_whose_dismissal_was_lost_and_no_other(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        job, (node,) = made_for_a_job(session, "one")
        release_allocations(session, job.id, NOW)
    assert _dismiss_idle() == [], "it is asked already"
    with migrated.write() as session:
        (asked,) = session.exec(select(tables.OutboxRow))
        asked.delivered_at = NOW
    assert len(_dismiss_idle()) == 1
    with migrated.read() as session:
        assert removals_asked(session) == [node.id, node.id]


def test_a_machine_that_stays_is_dismissed_neither_with_its_job_nor_by_the_sweep(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        job, (one, two) = made_for_a_job(session, "one", "two")
        one.machine = {"spec": {"lifetime_s": 60}}
        session.flush()
        step = Record(
            resource_id=job.id,
            account_id=job.account_id,
            sequence=1,
            at=NOW,
            status=JobStatus.FINISHED,
            changes=JobChanges(release=True, staying_nodes=(one.id,)),
        )
    record(step)
    _dismiss_idle()
    with migrated.read() as session:
        assert set(removals_asked(session)) == {two.id}
        assert_books_agree(session)
        machine = session.get_one(tables.Node, one.id).machine
    assert machine == {"spec": {"lifetime_s": 60}, "stays": True}
