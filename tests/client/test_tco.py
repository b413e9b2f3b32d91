"""`baseload tco`: drawn for people, CSV for spreadsheets, JSON for scripts."""

import asyncio
import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from baseload.commands.tco import bar_text

from activities.billing.usage import post_worker_usage
from activities.db import tables
from tests.api.running_jobs import running_job
from tests.client.conftest import Desk
from workflows.contracts.billing import WorkerUsage

STATED = ("--price", "20000", "--months", "36", "--watts", "1000", "--kwh-price", "0.30")


@pytest.fixture
def node_id(desk: Desk) -> str:
    """A node with two GPUs, there for 100 hours, of which one GPU was used for 50."""

    async def made() -> tuple[str, str]:
        node_id = await desk.person.node(await desk.person.region(), gpu_type="A100", gpu_count=2)
        return node_id, await running_job(desk.person, node_id, since=timedelta(hours=50))

    node_id, job_id = asyncio.run(made())
    added_at = datetime.now(UTC) - timedelta(hours=100)
    desk.site.set(tables.Node, node_id, created_at=added_at)
    (meter,) = desk.site.rows(tables.UsageMeter, job_id=job_id)
    with desk.site.database.write() as session:
        usage = WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=meter.started_at, through_s=180_000
        )
        post_worker_usage(session, usage)
    return node_id


@pytest.mark.usefixtures("node_id")
def test_the_break_even_is_drawn_as_wide_as_the_terminal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        ended = desk.baseload("tco", *STATED, "--on-demand", "8", "--committed", "1")
        assert (ended.code, "\x1b" in ended.out) == (0, False)
        drawn = [line for line in ended.out.splitlines() if "[#" in line]
        assert len(drawn) == 10
        assert all(len(line) <= columns for line in ended.out.splitlines())
        now, quarter, *_ = drawn
        assert now.startswith("  now  25 %  [##")
        assert "7.7 months" in quarter
        assert "+2609.75 a month" in quarter
    assert ended.out.startswith("n1: 2 x A100, 20000.00 credits, 50 GPU-hours since")
    assert "against on-demand at 8.00 a GPU-hour [1]" in ended.out
    assert ended.out.splitlines()[-1] == "[1] stated in the request"
    long = desk.baseload("tco", *STATED).out.splitlines()
    assert all(len(line) <= 100 for line in long)
    assert any(line.startswith("[1] list price of 2026-08-22") for line in long)


@pytest.mark.parametrize(
    ("paid", "bar"),
    [
        (None, "-" * 10),
        (0.1, "#" + "." * 9),
        (18, "#####....."),
        (36, "#" * 10),
        (37, "#########>"),
    ],
)
def test_a_bar_is_the_share_of_the_months_of_use(paid: float | None, bar: str) -> None:
    assert bar_text(paid, 36, 10) == bar


@pytest.mark.usefixtures("node_id")
def test_a_file_states_what_differs_by_node(desk: Desk) -> None:
    file = desk.folder / "nodes.yaml"
    file.write_text("n1: {price: 5, watts: 0, kwh-price: 0.25}\n")
    (node,) = desk.json("tco", *STATED, "--file", str(file))["nodes"]
    assert node["purchase_price_microcredits"]["value"] == 5_000_000
    assert node["electricity_microcredits_per_kwh"]["value"] == 250_000
    assert node["months_of_use"]["value"] == 36


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n1: {watt: 5}", "watt: asked one of price, months, watts"),
        ("n1: {watts: many}", "watts: asked a whole number, found 'many'"),
        ("n1: {price: many}", "asked credits, found 'many'"),
        ("- n1", "asked names of nodes"),
        ("{", "nodes.yaml"),
    ],
)
@pytest.mark.usefixtures("node_id")
def test_a_wrong_file_is_refused_before_anything_is_asked(
    desk: Desk, text: str, words: str
) -> None:
    file = desk.folder / "nodes.yaml"
    file.write_text(text)
    ended = desk.baseload("tco", *STATED, "--file", str(file))
    assert ended.code == 2
    assert words in ended.err


def test_csv_has_a_line_for_each_plan_and_utilisation(desk: Desk, node_id: str) -> None:
    lines = list(csv.DictReader(io.StringIO(desk.baseload("tco", *STATED, "--csv").out)))
    plans = {line["plan"] for line in lines}
    assert len(lines) == 2 * 5 * len(plans)
    first = lines[0]
    assert (first["node"], first["plan"], first["now"]) == (node_id, "on-demand", "yes")
    assert first["price_source"].startswith("list price of 2026-08-22")
    assert first["electricity"] == "219.00"
    assert {line["node"] for line in lines} == {node_id, "total"}


@pytest.mark.usefixtures("node_id")
def test_a_node_of_which_nothing_is_stated_is_named_with_what_is_missing(desk: Desk) -> None:
    ended = desk.baseload("tco", "--price", "5")
    assert (ended.code, ended.out) == (0, "")
    assert "left out: n1: nothing is stated of its months_of_use" in ended.err
