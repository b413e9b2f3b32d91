"""What owning costs over HTTP: from what is stated, from the ledger, from dated list prices."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.billing.usage import post_worker_usage
from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.running_jobs import running_job
from workflows.contracts.billing import WorkerUsage

CREDIT = 1_000_000
STATED = {
    "purchase_price_microcredits": 20_000 * CREDIT,
    "months_of_use": 36,
    "power_w": 1000,
    "electricity_microcredits_per_kwh": 300_000,
}


async def _node(ada: Person, name: str = "n1", **values: Any) -> str:
    """A node with two GPUs that is there for 100 hours."""
    of_gpus = {"gpu_type": "A100", "gpu_count": 2, **values}
    node_id = await ada.node(await ada.region(f"at-{name}"), name, **of_gpus)
    ada.site.set(tables.Node, node_id, created_at=datetime.now(UTC) - timedelta(hours=100))
    return node_id


async def _ran(site: Site, ada: Person, node_id: str, hours: int) -> None:
    """A job with one A100 that has run on the node for so long, and is posted."""
    job_id = await running_job(ada, node_id, since=timedelta(hours=hours))
    with site.database.write() as session:
        (meter,) = site.rows(tables.UsageMeter, job_id=job_id)
        usage = WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=meter.started_at, through_s=hours * 3600
        )
        post_worker_usage(session, usage)


async def _asked(ada: Person, **stated: Any) -> dict[str, Any]:
    answer = await ada.get("/v1/tco", params={**STATED, **stated})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _figures(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [figure for each in value for figure in _figures(each)]
    if not isinstance(value, dict):
        return []
    if value.keys() == {"value", "source"}:
        return [value]
    return [figure for each in value.values() for figure in _figures(each)]


async def test_a_node_pays_back_by_the_gpu_hours_in_the_ledger(site: Site, ada: Person) -> None:
    node_id = await _node(ada)
    await _ran(site, ada, node_id, 50)
    found = await _asked(ada, on_demand_microcredits_per_gpu_hour=8 * CREDIT)
    (node,) = found["nodes"]
    assert node["gpu_hours"]["value"] == 50
    assert node["utilisation"]["value"] == pytest.approx(0.25, abs=0.001)
    on_demand = node["comparisons"][0]
    assert (on_demand["plan"], on_demand["microcredits_per_gpu_hour"]["value"]) == (
        "on-demand", 8 * CREDIT,
    )  # fmt: skip
    now, quarter, *_, full = on_demand["months"]
    assert [each["is_now"] for each in on_demand["months"]] == [True, False, False, False, False]
    # 365 GPU-hours at 8: 2920; fees at 0.25: 91.25; electricity 219: 2609.75; 20,000 in 7.7.
    assert quarter["rental_microcredits"]["value"] == 2920 * CREDIT
    assert quarter["usage_fee_microcredits"]["value"] == 91_250_000
    assert quarter["electricity_microcredits"]["value"] == 219 * CREDIT
    assert quarter["saved_microcredits"]["value"] == 2_609_750_000
    assert quarter["pays_back_months"]["value"] == 7.7
    assert now["pays_back_months"]["value"] == pytest.approx(7.7, abs=0.1)
    assert full["pays_back_months"]["value"] < 7.7
    assert found["total"]["comparisons"][0]["months"][1]["pays_back_months"]["value"] == 7.7


async def test_every_figure_says_where_it_comes_from(site: Site, ada: Person) -> None:
    await _ran(site, ada, await _node(ada), 5)
    found = await _asked(ada)
    figures = _figures(found)
    assert len(figures) > 100
    assert all(figure["source"] for figure in figures)
    plans = {each["plan"]: each for each in found["nodes"][0]["comparisons"]}
    assert set(plans) == {"on-demand", "committed-12", "committed-36"}
    assert "list price of 2026-08-22" in plans["on-demand"]["microcredits_per_gpu_hour"]["source"]


async def test_a_list_price_that_is_not_known_is_not_guessed(ada: Person) -> None:
    await _node(ada)
    await _node(ada, "home", gpu_type="RTX4090", gpu_count=1)
    found = await _asked(ada)
    home = found["nodes"][1]
    for comparison in home["comparisons"]:
        price = comparison["microcredits_per_gpu_hour"]
        assert (price["value"], comparison["months"]) == (None, [])
        assert "no list price of RTX4090 is known: state " in price["source"]
    assert found["total"]["comparisons"] == []
    assert found["total"]["without_price"][0] == "on-demand: no price is known for home (RTX4090)"
    both = {f"{plan}_microcredits_per_gpu_hour": CREDIT for plan in ("on_demand", "committed")}
    stated = await _asked(ada, **both)
    assert [each["plan"] for each in stated["total"]["comparisons"]] == ["on-demand", "committed"]
    assert stated["nodes"][1]["comparisons"][0]["microcredits_per_gpu_hour"] == {
        "value": CREDIT, "source": "stated in the request",
    }  # fmt: skip


async def test_what_is_stated_of_one_node_counts_for_it_alone(ada: Person) -> None:
    first, second = await _node(ada), await _node(ada, "n2")
    own = {second: {"purchase_price_microcredits": 5 * CREDIT, "power_w": 0}}
    nodes = (await _asked(ada, overrides=json.dumps(own)))["nodes"]
    prices = {
        node["node_id"]: (node["purchase_price_microcredits"]["value"], node["power_w"]["value"])
        for node in nodes
    }
    assert prices == {first: (20_000 * CREDIT, 1000), second: (5 * CREDIT, 0)}
    assert nodes[1]["months_of_use"]["value"] == 36


async def test_a_node_of_which_too_little_is_stated_or_known_is_left_out_with_the_reason(
    ada: Person,
) -> None:
    cpus = await _node(ada, gpu_type=None, gpu_count=0)
    stated = await _node(ada, "n2")
    answer = await ada.get("/v1/tco", params={"overrides": json.dumps({stated: STATED})})
    assert [node["node_id"] for node in answer.json()["nodes"]] == [stated]
    silent = await ada.get("/v1/tco", params={"power_w": 100})
    assert silent.json()["total"] is None
    reasons = {each["node_id"]: each["reason"] for each in silent.json()["left_out"]}
    assert reasons == {
        cpus: "no GPU is known of it",
        stated: "nothing is stated of its purchase_price_microcredits, months_of_use, "
        "electricity_microcredits_per_kwh",
    }


async def test_nodes_of_others_and_of_clouds_are_not_in_the_answer(
    ada: Person, bob: Person
) -> None:
    node_id = await _node(ada)
    leased = await _node(ada, "leased", machine={"lease_id": "lea-1"})
    theirs = await bob.get("/v1/tco", params={**STATED, "node_id": [node_id]})
    assert (theirs.json()["nodes"], theirs.json()["left_out"]) == ([], [])
    found = await _asked(ada, node_id=[node_id, leased])
    assert [node["node_id"] for node in found["nodes"]] == [node_id]


@pytest.mark.parametrize(
    ("parameter", "value", "field"),
    [
        ("overrides", "{", "overrides"),
        ("overrides", '{"nod-1": {"power_w": -1}}', "overrides.nod-1.power_w"),
        ("overrides", '{"nod-1": {"watts": 1}}', "overrides.nod-1.watts"),
        ("begins_at", "2020-01-01T00:00:00Z", "begins_at"),
        ("months_of_use", 0, "months_of_use"),
    ],
)
async def test_a_mistake_names_its_field(
    ada: Person, parameter: str, value: object, field: str
) -> None:
    answer = await ada.get("/v1/tco", params={**STATED, parameter: value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].endswith(field)
