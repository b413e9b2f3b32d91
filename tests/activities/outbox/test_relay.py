"""Requests of rows reach Temporal once, in order, also when it was away meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, select
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.outbox import workflow_starts
from activities.outbox.relay import relay, relay_outbox
from activities.outbox.requests import enqueue, wake
from activities.settings import settings
from activities.temporal.client import set_client, signal_once
from tests.activities.placement.rows import statements
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region
from tests.temporal_server import TemporalServer
from tests.waiting import eventually
from workflows.contracts.removals import Removal
from workflows.effects.reconciliation import RelayOutbox


def ask(
    database: Database, resource_id: str, verb: str, argument: dict[str, Any] | None = None
) -> str:
    row = tables.OutboxRow(
        id=new_id("req"),
        resource_id=resource_id,
        verb=verb,
        argument=argument,
        created_at=NOW,
    )
    with database.write() as session:
        session.add(row)
    return row.id


def undelivered(database: Database) -> list[str]:
    with database.read() as session:
        query = select(tables.OutboxRow.id).where(col(tables.OutboxRow.delivered_at).is_(None))
        return list(session.exec(query).all())


def set_row(database: Database, job: tables.Job, status: str, sequence: int) -> None:
    with database.write() as session:
        row = session.get_one(tables.Job, job.id)
        row.status, row.sequence = status, sequence


async def signals_of(client: Client, workflow_id: str) -> list[str]:
    signaled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    return [
        event.workflow_execution_signaled_event_attributes.signal_name
        async for event in client.get_workflow_handle(workflow_id).fetch_history_events()
        if event.event_type == signaled
    ]


async def status_of(client: Client, workflow_id: str) -> WorkflowExecutionStatus | None:
    return (await client.get_workflow_handle(workflow_id).describe()).status


@pytest.fixture
def job(migrated: Database) -> tables.Job:
    with migrated.write() as session:
        return add_job(session, add_payer(session))


@pytest.fixture
def node(migrated: Database) -> tables.Node:
    with migrated.write() as session:
        return add_node(session, add_region(session, add_payer(session, "owner")))


async def test_a_start_makes_a_workflow_that_is_found_by_its_attributes(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    assert await relay(temporal_server, [ask(migrated, job.id, "start")]) == 1
    seen = await temporal_server.get_workflow_handle(f"job/{job.id}").describe()
    assert seen.workflow_type == "JobLifecycle"
    assert seen.status is WorkflowExecutionStatus.RUNNING
    found_by = {pair.key.name: pair.value for pair in seen.typed_search_attributes}
    assert found_by["AccountId"] == job.account_id
    assert found_by["GpuType"] == "A100"
    assert undelivered(migrated) == []


async def test_a_job_is_found_by_its_name_and_its_status(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).name = f"Büro: my-job {job.id}"
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    query = f"ResourceName = 'Büro: my-job {job.id}' AND ResourceStatus = 'new'"

    async def is_found() -> bool:
        found = [each.id async for each in temporal_server.list_workflows(query)]
        return found == [f"job/{job.id}"]

    await eventually(is_found, "the job is found by its name")
    assert (await temporal_server.count_workflows("ResourceName = 'my-job'")).count == 0


async def test_a_server_that_does_not_know_the_name_starts_the_workflow_without_it(
    migrated: Database,
    job: tables.Job,
    temporal_server: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = SearchAttributeKey.for_keyword_list("ResourceNameOfLater")
    monkeypatch.setattr(workflow_starts, "RESOURCE_NAME", unknown)
    assert await relay(temporal_server, [ask(migrated, job.id, "start")]) == 1
    seen = await temporal_server.get_workflow_handle(f"job/{job.id}").describe()
    found_by = {pair.key.name for pair in seen.typed_search_attributes}
    assert {"AccountId", "ResourceStatus"} <= found_by


@pytest.mark.parametrize(
    ("codec", "name"), [("off", "digits"), ("decode", "digits"), ("aes-gcm", "")]
)
def test_a_name_stays_plain_only_where_payloads_do(
    job: tables.Job, codec: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_PAYLOAD_CODEC", codec)
    settings.cache_clear()
    start = workflow_starts.workflow_start(job, Removal(), {})
    assert start.name == name
    assert "digits" in start.summary, "which is encrypted as payloads are"


async def test_delivering_twice_starts_once(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    request = ask(migrated, job.id, "start")
    await relay(temporal_server, [request])
    first = await temporal_server.get_workflow_handle(f"job/{job.id}").describe()
    assert await relay(temporal_server, [request]) == 0
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    second = await temporal_server.get_workflow_handle(f"job/{job.id}").describe()
    assert second.run_id == first.run_id


async def test_a_start_delivered_late_does_not_run_an_ended_job_again(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    await temporal_server.get_workflow_handle(f"job/{job.id}").terminate()
    set_row(migrated, job, "finished", 9)
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    status = await status_of(temporal_server, f"job/{job.id}")
    assert status is WorkflowExecutionStatus.TERMINATED


async def test_signals_come_after_the_start_and_in_order(
    migrated: Database, node: tables.Node, temporal_server: Client
) -> None:
    wanted = [
        ask(migrated, node.id, "start"),
        ask(migrated, node.id, "activate"),
        ask(migrated, node.id, "maintain"),
        ask(migrated, node.id, "remove", {"force": True, "requested_by": "usr-1"}),
    ]
    assert await relay(temporal_server, wanted) == 4
    signals = await signals_of(temporal_server, f"node/{node.id}")
    assert signals == ["activate", "maintain", "remove"]


async def test_a_signal_to_what_was_never_started_starts_it(
    migrated: Database, node: tables.Node, temporal_server: Client
) -> None:
    await relay(temporal_server, [ask(migrated, node.id, "activate")])
    assert await signals_of(temporal_server, f"node/{node.id}") == ["activate"]


async def test_a_signal_to_an_ended_job_counts_as_delivered(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    set_row(migrated, job, "finished", 9)
    asked = ask(migrated, job.id, "cancel", {"reason": "no longer wanted"})
    assert await relay(temporal_server, [asked]) == 1
    assert undelivered(migrated) == []


async def test_a_signal_to_a_lost_workflow_waits_for_the_sweep(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    set_row(migrated, job, "running", 5)
    asked = ask(migrated, job.id, "cancel", {"reason": "no longer wanted"})
    assert await relay(temporal_server, [asked]) == 0
    assert undelivered(migrated) == [asked]


async def test_a_failed_node_still_takes_signals_and_so_they_wait_for_the_sweep(
    migrated: Database, node: tables.Node, temporal_server: Client
) -> None:
    with migrated.write() as session:
        row = session.get_one(tables.Node, node.id)
        row.status, row.sequence = "failed", 5
    asked = ask(migrated, node.id, "activate")
    assert await relay(temporal_server, [asked]) == 0
    assert undelivered(migrated) == [asked]


async def test_a_signal_that_was_taken_and_not_noted_is_heard_once(
    migrated: Database, node: tables.Node, temporal_server: Client
) -> None:
    reboot = ask(migrated, node.id, "reboot")
    for _ in range(2):
        assert await relay(temporal_server, [reboot]) == 1
        with migrated.write() as session:
            session.get_one(tables.OutboxRow, reboot).delivered_at = None
    assert await signals_of(temporal_server, f"node/{node.id}") == ["reboot"]
    await relay(temporal_server, [ask(migrated, node.id, "reboot")])
    assert await signals_of(temporal_server, f"node/{node.id}") == ["reboot", "reboot"]


async def test_a_removal_meets_a_notebook_that_was_started_again_meanwhile(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    set_row(migrated, job, "waiting_for_resources", 12)
    removal = ask(migrated, job.id, "start", {"removal": True})
    assert await relay(temporal_server, [removal]) == 1
    assert await signals_of(temporal_server, f"job/{job.id}") == ["remove"]


async def test_a_removal_of_an_ended_job_runs_its_workflow_once_more(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    handle = temporal_server.get_workflow_handle(f"job/{job.id}")
    set_row(migrated, job, "finished", 9)
    removal = ask(migrated, job.id, "start", {"removal": True})
    assert await relay(temporal_server, [removal]) == 0, "the first run has not closed yet"
    await handle.terminate()
    assert await relay(temporal_server, [removal]) == 1
    assert await status_of(temporal_server, handle.id) is WorkflowExecutionStatus.RUNNING


async def test_a_request_of_a_row_that_cannot_be_read_keeps_nobody_else_waiting(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    with migrated.write() as session:
        other = add_job(session, session.get_one(tables.Account, job.account_id))
        session.get_one(tables.Job, job.id).spec = {"unknown": "to this version"}
    unreadable, readable = ask(migrated, job.id, "start"), ask(migrated, other.id, "start")
    assert await relay(temporal_server, [unreadable, readable]) == 1
    assert undelivered(migrated) == [unreadable]


@pytest.fixture
def deaf(migrated: Database, node: tables.Node) -> str:
    """A node whose workflow was lost, with 500 signals that nobody can take."""
    with migrated.write() as session:
        row = session.get_one(tables.Node, node.id)
        row.status, row.sequence = "active", 5
        for _ in range(500):
            enqueue(session, node.id, "reboot", None, NOW)
    return node.id


async def test_500_rows_that_cannot_be_delivered_keep_no_other_resource_waiting(
    migrated: Database, deaf: str, job: tables.Job, temporal_server: Client
) -> None:
    set_client(temporal_server)
    with migrated.write() as session:
        enqueue(session, job.id, "start", None, NOW + timedelta(minutes=1))
    assert (await relay_outbox(RelayOutbox())).delivered == 1
    assert (await status_of(temporal_server, f"job/{job.id}")) is WorkflowExecutionStatus.RUNNING
    with migrated.read() as session:
        head = session.exec(
            select(tables.OutboxRow)
            .where(tables.OutboxRow.resource_id == deaf)
            .order_by(col(tables.OutboxRow.id))
        ).first()
    assert head is not None
    assert head.attempts == 1
    assert head.next_attempt_at is not None
    assert (await relay_outbox(RelayOutbox())).delivered == 0
    with migrated.read() as session:
        again = session.get_one(tables.OutboxRow, head.id)
    assert again.attempts == 1, "it was tried before its pause was over"


async def test_a_row_that_was_refused_for_a_day_is_parked_and_the_next_one_is_tried(
    migrated: Database, deaf: str, temporal_server: Client
) -> None:
    first = min(undelivered(migrated))
    with migrated.write() as session:
        session.get_one(tables.OutboxRow, first).refused_since = NOW
    await relay(temporal_server, [first])
    await relay(temporal_server, [max(undelivered(migrated))])
    with migrated.read() as session:
        assert session.get_one(tables.OutboxRow, first).parked_at is not None
        second = session.get_one(tables.OutboxRow, sorted(undelivered(migrated))[1])
        events = session.exec(
            select(tables.EventRow).where(tables.EventRow.resource_id == deaf)
        ).all()
    assert (second.attempts, second.parked_at) == (1, None)
    assert [event.type for event in events] == ["node.request-parked"]
    assert "reboot could not be delivered" in events[0].message


async def test_a_later_signal_does_not_overtake_one_that_failed(
    migrated: Database,
    node: tables.Node,
    temporal_server: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = ["reboot"]

    async def lose_one(
        client: Client, workflow_id: str, signal: str, *args: Any, **more: Any
    ) -> None:
        if signal in lost:
            lost.remove(signal)
            raise TimeoutError("no answer")
        await signal_once(client, workflow_id, signal, *args, **more)

    monkeypatch.setattr("activities.outbox.relay.signal_once", lose_one)
    assert await relay(temporal_server, [ask(migrated, node.id, "reboot")]) == 0
    later = ask(migrated, node.id, "remove", {"force": True, "requested_by": "usr-1"})
    assert await relay(temporal_server, [later]) == 2
    assert await signals_of(temporal_server, f"node/{node.id}") == ["reboot", "remove"]


async def test_wakes_that_strangers_cause_are_one_row_and_one_signal_at_a_time(
    migrated: Database, node: tables.Node, temporal_server: Client
) -> None:
    for _ in range(20):
        with migrated.write() as session:
            woken = wake(session, node.id, datetime.now(UTC), slowly=True)
        await relay(temporal_server, [woken])
    assert undelivered(migrated) == [woken]
    assert await signals_of(temporal_server, f"node/{node.id}") == ["wake"]
    with migrated.write() as session:
        asked = wake(session, node.id, datetime.now(UTC))
    await relay(temporal_server, [asked])
    assert await signals_of(temporal_server, f"node/{node.id}") == ["wake", "wake"]


async def test_what_was_held_back_in_one_batch_is_held_back_in_the_next(
    migrated: Database,
    job: tables.Job,
    temporal_server: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await relay(temporal_server, [ask(migrated, job.id, "start")])
    set_row(migrated, job, "running", 5)
    wanted = [ask(migrated, job.id, "stop", {"reason": "for the night"})]
    wanted += [ask(migrated, job.id, "cancel", {"reason": "not wanted"}) for _ in range(64)]

    async def lose_stops(
        client: Client, workflow_id: str, signal: str, *args: Any, **more: Any
    ) -> None:
        if signal == "stop":
            raise TimeoutError("no answer")
        await signal_once(client, workflow_id, signal, *args, **more)

    monkeypatch.setattr("activities.outbox.relay.signal_once", lose_stops)
    assert await relay(temporal_server, wanted) == 0
    assert await signals_of(temporal_server, f"job/{job.id}") == []


async def test_many_requests_are_all_delivered(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    with migrated.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        jobs = [add_job(session, account) for _ in range(100)]
    wanted = [ask(migrated, row.id, "start") for row in jobs]
    assert await relay(temporal_server, wanted) == 100


async def test_one_relay_puts_as_many_questions_to_the_database_for_one_start_as_for_many(
    migrated: Database, job: tables.Job, temporal_server: Client
) -> None:
    with migrated.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        jobs = [add_job(session, account) for _ in range(20)]
    one, *many = [ask(migrated, row.id, "start") for row in jobs]
    with statements() as for_one:
        assert await relay(temporal_server, [one]) == 1
    with statements() as for_many:
        assert await relay(temporal_server, many) == 19
    assert len(for_many) == len(for_one)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[TemporalServer]:
    folder = tmp_path / "temporal"
    folder.mkdir()
    server = TemporalServer(folder)
    yield server
    server.stop()


async def test_what_was_asked_while_temporal_was_away_is_delivered_once(
    migrated: Database, job: tables.Job, own_server: TemporalServer
) -> None:
    own_server.start()
    client = await own_server.connect()
    own_server.stop()
    wanted = [
        ask(migrated, job.id, "start"),
        ask(migrated, job.id, "cancel", {"reason": "no longer wanted"}),
    ]
    for _ in range(6):
        assert await relay(client, wanted) == 0
    assert sorted(undelivered(migrated)) == sorted(wanted)
    with migrated.read() as session:
        first = session.get_one(tables.OutboxRow, wanted[0])
    assert first.refused_since is None, "silence is no refusal"
    assert first.next_attempt_at is not None
    assert first.next_attempt_at < datetime.now(UTC) + timedelta(seconds=30)
    own_server.start()
    client = await own_server.connect()
    assert await relay(client, wanted) == 2
    assert await relay(client, wanted) == 0
    assert await signals_of(client, f"job/{job.id}") == ["cancel"]
