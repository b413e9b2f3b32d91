"""Jobs that run, as the rows that their workflows would have written."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import select

from activities.db import tables
from activities.db.ids import new_id
from tests.activities.cloud_rows import add_lease
from tests.api.http_server import Person, Site
from workflows.rules.billing.usage_fees import usage_rates

GPU = "GPU-0b1c"
RATE = 250_000
"""Microcredits per hour of one A100."""


async def running_job(
    person: Person, node_id: str, *, since: timedelta = timedelta(minutes=30), **changes: Any
) -> str:
    """A job of one worker with one A100 on a node, of which nothing is posted."""
    site = person.site
    job_id = await person.job(**changes)
    began = datetime.now(UTC) - since
    (node,) = site.rows(tables.Node, id=node_id)
    address = {
        "node_id": node_id, "region_id": node.region_id, "host": node.host or "h", "port": 22,
        "minion_id": node.minion_id,
    }  # fmt: skip
    worker = {
        "index": 0,
        "status": "running",
        "assignment": {"worker": 0, "node": address, "gpu_indices": [0], "gpu_uuids": [GPU]},
        "run_id": f"{job_id}-0-1",
        "exit": None,
        "elapsed_s": 0.0,
        "started_at": began.isoformat(),
        "finished_at": None,
    }
    rates = usage_rates("A100", 1, 1, began, cpu_core_hour=0)
    site.set(
        tables.Job, job_id, status="running", workers=[worker],
        rates={"0": rates.model_dump(mode="json")},
    )  # fmt: skip
    held = tables.Allocation(
        id=new_id("alc"), job_id=job_id, worker=0, attempt=1, node_id=node_id, cpu_count=1,
        memory_bytes=1 << 30, gpu_indices=[0], state="running", created_at=began,
    )  # fmt: skip
    meter = tables.UsageMeter(
        job_id=job_id, worker=0, attempt=1, payer_id=person.account_id,
        rates=rates.model_dump(mode="json"), microcredits_per_hour=rates.microcredits_per_hour,
        started_at=began,
    )  # fmt: skip
    site.write(held, meter)
    return job_id


def lease_its_machine(site: Site, job_id: str, **price: Any) -> None:
    """Let the machine of a running job be leased for the job, an hour ago."""
    began_at = datetime.now(UTC) - timedelta(hours=1)
    with site.database.write() as session:
        (held,) = session.exec(select(tables.Allocation).where(tables.Allocation.job_id == job_id))
        node = session.get_one(tables.Node, held.node_id)
        node.type = "ephemeral"
        region = session.get_one(tables.Region, node.region_id)
        add_lease(session, region, node.id, status="ready", began_at=began_at, created_at=began_at,
                  **price)  # fmt: skip
