"""Offers against 10,000 nodes: over HTTP, and the rules alone."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import httpx
from sqlmodel import select

from activities.accounts.bootstrap import bootstrap
from activities.db import tables
from activities.db.session import Database
from tests.activities.placement.rows import add_gpu_node
from tests.activities.rows import add_region
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms, share_below
from tests.bench.rules import offer_of
from tests.lab.waiting import wait_until
from tests.rules.placement.cloud_offers import cloud_offer
from tests.rules.placement.offers import GIB, NOW, OWNER, by_demand, job
from tests.temporal_server import CHECKOUT
from workers.runner.probes import free_port
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineOffer, Shortage
from workflows.contracts.placement import CloudOffer
from workflows.rules.placement.cloud_market import CloudOffers, Market
from workflows.rules.placement.inventory import Inventory
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank

NODES = 10_000
ASKED = 40
HTTP_AIM_S = 0.05
RULES_AIM_S = 0.005
TYPES = ("A100", "H100", "L4")
RENTED = ("runpod", "vastai", "local", "colab")
KINDS = ("colab", "local", "vastai", "runpod", "gcp")
"""As a job names them, those first that sell none of what it asks for."""


def rows() -> list[Row]:
    """One process of the API over a database with so many active nodes."""
    with home() as (folder, opened):
        bootstrap()
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
        cloud_row(),
    ]


def cloud_row() -> Row:
    """A job planned onto the cheapest of so many offers of five kinds, a tenth of them short.

    Beside it: the same where the job names providers, the first of which sells no such machine.
    """
    sold = _sold()
    zones = sum(len(offer.zones) for offer in sold)
    short = {
        (offer.provider_id, zone.scope): Shortage(scope=zone.scope, reason="none", until=NOW)
        for number, offer in enumerate(sold)
        for zone in offer.zones
        if number % 10 == 0
    }
    situation = PlanningContext(now=NOW, market=Market(CloudOffers(sold), short))
    index_s = best_s(lambda: CloudOffers(sold), runs=3)
    plan_s = _plan_s(situation)
    named_s = _plan_s(situation, providers=KINDS)
    dear = [job(gpus=4, gpu_types=TYPES, max_price_microcredits_per_gpu_hour=1)]
    refused_s = best_s(lambda: plan(by_demand(dear), [], situation), runs=5)
    kinds = len({offer.provider_kind for offer in sold})
    return Row(
        f"a job planned over {zones:,} offers of {kinds} kinds of provider",
        ms(plan_s),
        f"{ms(named_s)} in the order of the providers that it names; {ms(refused_s)} where all are "
        f"too dear, with the refusal of each region; {ms(index_s)} to index them when one changes",
        "< 5 ms",
        max(plan_s, named_s) < RULES_AIM_S,
    )


def _plan_s(situation: PlanningContext, providers: tuple[str, ...] = ()) -> float:
    """Seconds of a round that makes machines for one job."""
    asked = [job(gpus=4, gpu_types=TYPES, providers=providers)]
    if len(plan(by_demand(asked), [], situation).bursts) != 1:
        raise RuntimeError("what is timed does not plan anything")
    return best_s(lambda: plan(by_demand(asked), [], situation), runs=20)


def _sold() -> list[CloudOffer]:
    """Of one account: 18,000 zones of a cloud's 300 regions, which sell ten machines of each of
    three types, and 18,000 machines of 24 providers of four rented kinds."""
    return [
        *(
            cloud_offer(
                f"m{machine}",
                gpus=1 << machine % 5,
                region_id=f"reg-{region:03}",
                cloud_region=f"cloud-{region}",
                gpu_type=gpu_type,
                spot=machine < 5,
                microcredits_per_hour=1_000_000 + 997 * region % 4093 + machine,
            )
            for region in range(300)
            for gpu_type in TYPES
            for machine in range(10)
        ),
        *(_rented(number) for number in range(18_000)),
    ]


def _rented(number: int) -> CloudOffer:
    """An ask of a marketplace, each another machine."""
    kind, gpus = RENTED[number % 4], 1 << number // 24 % 5
    provider, price = f"{kind}-{number % 24}", 900_000 + 7919 * number % 4_000_003
    gpu_type = TYPES[number // 120 % 3] if kind in ("runpod", "vastai") else None
    machine = MachineOffer(
        zone="us",
        machine_type=f"ask-{gpus}",
        gpu_type=gpu_type,
        gpu_count=gpus if gpu_type else 0,
        microcredits_per_hour=price,
        provider_offer_id=str(number),
    )
    return CloudOffer(
        offer_id=f"reg-{provider}/{number}",
        region_id=f"reg-{provider}",
        region_name=provider,
        cloud_region=kind,
        account_id=OWNER,
        provider_id=f"prv-{provider}",
        provider_kind=kind,
        machine_type=machine.machine_type,
        gpu_type=gpu_type,
        gpu_count=machine.gpu_count,
        cpu_count=8 * gpus,
        memory_bytes=64 * gpus * GIB,
        spot=False,
        zones=(machine,),
        microcredits_per_hour=price,
        disk_microcredits_per_gb_month=100_000 + 1000 * (number % 40),
        read_at=NOW,
        fee=UsageRates(gpu_count=machine.gpu_count),
    )


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
    asked = job(gpus=4, cpu_count=8).demand
    return best_s(lambda: rank(asked, many), runs=20)
