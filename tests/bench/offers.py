"""Offers against 10,000 nodes: over HTTP, and the rules alone."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import httpx
from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.first_start import first_start
from tests.activities.placing import add_gpu_node
from tests.activities.rows import add_region
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms, share_below
from tests.bench.rules import offer_of
from tests.lab.waiting import wait_until
from tests.rules.offers import job
from tests.temporal_server import CHECKOUT
from workers.runner.probes import free_port
from workflows.rules.inventory import Demand, Inventory
from workflows.rules.ranking import rank

NODES = 10_000
ASKED = 40
HTTP_AIM_S = 0.05
RULES_AIM_S = 0.005


def rows() -> list[Row]:
    """One process of the API over a database with so many active nodes."""
    with home() as (folder, opened):
        first_start()
        _add_nodes(opened)
        times_s, empty_s = _ask(folder)
    rules_s = _rules_s()
    p50_s = share_below(times_s, 0.5)
    beside = f"GET /v1/account: {ms(empty_s)}; p95 {ms(share_below(times_s, 0.95))}"
    return [
        Row(
            f"GET /v1/offers, {NODES:,} nodes, p50",
            ms(p50_s),
            beside,
            "< 50 ms",
            p50_s < HTTP_AIM_S,
        ),
        Row(
            f"offers, the rules alone, {NODES:,} nodes",
            ms(rules_s),
            "",
            "< 5 ms",
            rules_s < RULES_AIM_S,
        ),
    ]


def _add_nodes(opened: Database) -> None:
    with opened.write() as session:
        account = session.exec(select(tables.Account)).one()
        region = add_region(session, account)
        for number in range(NODES):
            add_gpu_node(session, region, f"n{number}")


def _ask(folder: Path) -> tuple[list[float], float]:
    """Seconds of each answer, the first one left out; of the shortest other one."""
    port = free_port()
    api = subprocess.Popen(
        [sys.executable, "-m", "workers", "api"],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "BASELOAD_API": f"127.0.0.1:{port}",
            "BASELOAD_TEMPORAL_ADDRESS": "127.0.0.1:1",
        },
        stderr=subprocess.DEVNULL,
    )
    key = (folder / "admin.key").read_text().strip()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
        ) as http:
            wait_until(lambda: _answers(http), "the API answers", 60)
            _timed_s(http, "/v1/offers?gpus=A100:2")
            times_s = [_timed_s(http, "/v1/offers?gpus=A100:2") for _ in range(ASKED)]
            return times_s, min(_timed_s(http, "/v1/account") for _ in range(ASKED))
    finally:
        api.terminate()
        api.wait(30)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _timed_s(http: httpx.Client, path: str) -> float:
    started = time.perf_counter()
    http.get(path).raise_for_status()
    return time.perf_counter() - started


def _rules_s() -> float:
    chance = random.Random(1)
    many = Inventory(offer_of(chance, number) for number in range(NODES))
    asked = Demand.of(job(gpus=4, cpu_count=8))
    return best_s(lambda: rank(asked, many), runs=20)
