"""What people read of running jobs: time, node, cost, address."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

from activities.billing.usage import post_worker_usage
from activities.db import tables
from tests.api.running_jobs import lease_its_machine, running_job
from tests.client.conftest import Desk
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.machines import MachineOffer

GOOGLE_OFFER = MachineOffer(
    zone="europe-west4-a", machine_type="a2-highgpu-1g", gpu_type="A100", gpu_count=1,
    microcredits_per_hour=3_670_000, price_is_estimate=True,
).model_dump(mode="json")  # fmt: skip


def _running(desk: Desk, **changes: object) -> str:
    async def made() -> str:
        node_id = await desk.person.node(await desk.person.region(), gpu_type="A100", gpu_count=8)
        return await running_job(desk.person, node_id, **changes)  # type: ignore[arg-type]

    return asyncio.run(made())


def test_the_list_shows_time_node_rate_and_what_is_not_posted(desk: Desk) -> None:
    _running(desk)
    head, row = desk.baseload("ps").out.splitlines()
    cells = dict(zip(head.split(), re.split(r"  +", row), strict=True))
    assert (cells["NODE"], cells["RATE"]) == ("n1", "0.25/h")
    assert re.fullmatch(r"30 min \d\d s", cells["ELAPSED"])
    assert cells["CREDITS"].startswith("~0.125")


def test_the_charges_of_a_running_job_say_what_is_not_yet_posted_and_the_rate(desk: Desk) -> None:
    job_id = _running(desk)
    for command in ("charges", "show"):
        out = desk.baseload(command, job_id).out
        assert re.search(r"not yet posted:? +about 0\.12\d* credits since the last posting", out)
        assert re.search(r"rate:? +0\.25 credits per hour", out)
    assert desk.json("charges", job_id)["unposted_microcredits"] >= 125_000


def test_a_job_that_waits_has_no_rate_and_nothing_unposted(desk: Desk) -> None:
    job_id = asyncio.run(desk.person.job())
    assert "posted" not in desk.baseload("charges", job_id).out
    assert "rate" not in desk.baseload("show", job_id).out


def test_a_job_on_a_leased_machine_says_what_that_costs_and_its_price(desk: Desk) -> None:
    job_id = _running(desk)
    lease_its_machine(desk.site, job_id, microcredits_per_hour=2_500_000)
    assert re.search(r"machines +2\.50\d* at 2\.50/h", desk.baseload("show", job_id).out)
    assert desk.json("show", job_id)["machine_microcredits_per_hour"] == 2_500_000
    assert re.search(r" 2\.50\d* at 2\.50/h", desk.baseload("ps").out)
    assert re.search(r"machines +1 leased, 2\.50/h", desk.baseload("status").out)
    costs = desk.json("costs", "--by", "project")
    assert 2_500_000 <= costs["machine_microcredits"] < 2_600_000


def test_what_a_dated_list_prices_is_marked_everywhere(desk: Desk) -> None:
    job_id = _running(desk)
    lease_its_machine(desk.site, job_id, offer=GOOGLE_OFFER)
    assert re.search(r"machines +about 3\.67\d* at 3\.67/h", desk.baseload("show", job_id).out)
    assert re.search(r"machines +1 leased, about 3\.67/h", desk.baseload("status").out)
    costs = desk.baseload("costs").out
    assert re.search(r" about \d", costs), "of each day, two after midnight"
    assert "3.67" in costs
    assert desk.json("status")["machines"] == {
        "count": 1, "microcredits_per_hour": 3_670_000, "price_is_estimate": True,
    }  # fmt: skip


def test_own_machines_cost_nothing(desk: Desk) -> None:
    job_id = _running(desk)
    assert not re.search("^machines", desk.baseload("show", job_id).out, re.MULTILINE)
    assert "MACHINES" not in desk.baseload("ps").out
    assert re.search(r"machines +none leased", desk.baseload("status").out)


def test_a_notebook_says_its_port_its_address_and_the_command_that_reaches_it(desk: Desk) -> None:
    _running(desk, type="notebook", port=8899)
    out = desk.baseload("show", "digits").out
    assert re.search(r"port +8899", out)
    assert re.search(r"address +http://10\.0\.0\.1:8899", out)
    assert re.search(r"from here +baseload forward digits", out)


def test_a_reason_of_many_lines_is_one_line_in_the_list_and_whole_in_the_job(desk: Desk) -> None:
    job_id = asyncio.run(desk.person.job())
    reason = "packages: pip has failed\nline two\nline three"
    desk.site.set(tables.Job, job_id, status="failed", status_reason=reason)
    listed = desk.baseload("ps").out
    assert len(listed.splitlines()) == 2
    assert ("pip has failed" in listed, "line two" in listed) == (True, False)
    assert "line three" in desk.baseload("show", job_id).out


def test_the_measurements_of_a_job_show_each_clock_and_what_is_posted(desk: Desk) -> None:
    waiting = asyncio.run(desk.person.job())
    assert "nothing is measured yet" in desk.baseload("charges", "digits", "--measurements").out
    assert desk.json("charges", waiting, "--measurements")["runs"] == []
    job_id, began_at = _running(desk, name="measured"), datetime(2026, 3, 1, 12, tzinfo=UTC)
    with desk.person.site.database.write() as session:
        usage = WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=began_at, through_s=60,
            node_started_at=began_at, node_ended_at=began_at + timedelta(seconds=61),
        )  # fmt: skip
        post_worker_usage(session, usage)
    for name in (job_id, "measured"):
        out = desk.baseload("charges", name, "--measurements").out
        assert re.search(r"node, wall clock +2026-03-01 12:00:00 +2026-03-01 12:01:01 +61 s", out)
        assert re.search(r"supervisor, monotonic .* 60 s", out)
        assert re.search(r"control plane, allocation .* \d+ s", out)
        assert "usage-fee" in out
