"""What administrators see of the nodes of others: a machine that has broken the protocol."""

from datetime import timedelta

from sqlmodel import col, select

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.platform_events import VIOLATION_INTERVAL
from activities.lifecycles.record import record
from tests.activities.rows import NOW, add_node, add_payer, add_region
from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import NodeChanges, Record

LIE = "watch: says what the agent never says"


def violated(node: tables.Node, sequence: int, after: timedelta = timedelta(0)) -> Record:
    return Record(
        resource_id=node.id,
        account_id=node.account_id,
        sequence=sequence,
        at=NOW + after,
        status="failed",
        events=(Event(type=NodeEvent.PROTOCOL_VIOLATED, message=LIE),),
        changes=NodeChanges(),
    )


def test_administrators_are_told_once_an_hour_of_a_node_that_breaks_the_protocol(
    migrated: Database,
) -> None:
    """Its owner sees every time."""
    with migrated.write() as session:
        administrator = add_payer(session, "administrator")
        administrator.is_administrator = True
        region = add_region(session, add_payer(session, "owner"))
        first, second = add_node(session, region, "n1"), add_node(session, region, "n2")
    for node in (first, second):
        record(violated(node, 1))
        record(violated(node, 1))
        record(violated(node, 2, VIOLATION_INTERVAL / 2))
        record(violated(node, 3, VIOLATION_INTERVAL * 2))
    with migrated.read() as session:
        mine = col(tables.EventRow.account_id) == administrator.id
        told = session.exec(select(tables.EventRow).where(mine)).all()
        seen = session.exec(select(tables.EventRow).where(~mine)).all()
    assert sorted(one.details["node_id"] for one in told) == sorted([first.id, second.id] * 2)
    assert {one.type for one in told} == {"platform.protocol-violated"}
    assert LIE in told[0].message
    assert len(seen) == 6


def test_a_node_fails_where_there_is_no_administrator(migrated: Database) -> None:
    with migrated.write() as session:
        node = add_node(session, add_region(session, add_payer(session)))
    assert record(violated(node, 1)).applied
