"""Reservations from the command."""

from datetime import UTC, datetime

from activities.db import tables
from tests.client.conftest import Desk
from tests.client.test_datastores import region

__all__ = ["region"]
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_reservation_is_made_listed_shown_and_removed(desk: Desk, region: str) -> None:
    asked = ("--region", region, "--hostname", "web", "--port", "8888")
    made = desk.json("reservation", "create", "front", *asked)
    assert (made["published_name"], made["port"], made["holder"]) == ("web.local", 8888, None)
    for verb in ("ls", "list"):
        assert {"front", "web.local", "8888"} <= set(desk.baseload("reservation", verb).out.split())
    assert [each["id"] for each in desk.json("reservation", "ls")["items"]] == [made["id"]]
    refused = desk.baseload("reservation", "create", "front", *asked)
    assert (refused.code, str(made["id"]) in refused.err) == (3, True)
    assert desk.baseload("reservation", "rm", "front", "--yes").out.endswith("8888  removed\n")
    again = desk.json("reservation", "create", "front", *asked)
    assert str(again["id"]) in desk.baseload("reservation", "remove", str(again["id"])).out


def test_a_conflict_is_shown_with_the_job_that_holds_it(desk: Desk, region: str) -> None:
    asked = ("--region", region, "--hostname", "web", "--port", "8888")
    made = desk.json("reservation", "create", "front", *asked)
    (node,) = desk.site.rows(tables.Node)
    with desk.site.database.write() as session:
        session.add(
            tables.Job(
                id="job-1", name="served", project_id=desk.person.project_id, type="endpoint",
                account_id=desk.person.account_id, spec={}, workers=[], placement_refusals=[],
                status="running", created_at=AT, updated_at=AT,
            )
        )  # fmt: skip
        session.flush()
        session.add(tables.JobReservation(job_id="job-1", reservation_id=made["id"]))
        session.add(
            tables.Allocation(
                id="alc-1", job_id="job-1", worker=0, attempt=1, node_id=node.id, cpu_count=1,
                memory_bytes=0, gpu_indices=[], reservation_id=made["id"], created_at=AT,
            )
        )  # fmt: skip
        session.add(
            tables.EventRow(
                id="evt-1", account_id=desk.person.account_id, resource_id="job-1", sequence=3,
                type="job.hostname-conflict", message="another machine has it", details={}, at=AT,
            )
        )  # fmt: skip
    shown = desk.baseload("reservation", "show", "front").out
    for words in ("served", node.name, "conflict", "another machine has it", "job-1"):
        assert words in shown
    (event,) = desk.json("reservation", "show", "front")["events"]
    assert (event["state"], event["job_id"]) == ("conflict", "job-1")
