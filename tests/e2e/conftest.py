from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.e2e.platform import Platform, Site
from tests.e2e.stack import RunningStack
from tests.lab.fixtures import boot_machine, lab
from tests.lab.machines import Lab

__all__ = ["boot_machine", "lab"]
BILLING_PERIOD_S = 3
CPU_CORE_HOUR_MICROCREDITS = 3_600_000
UNREACHABLE_LIMIT_S = 30


@pytest.fixture(scope="package")
def stack(lab: Lab) -> Iterator[RunningStack]:
    """One stack while these tests run; its home lies in the lab's folder, and is swept with it."""
    running = RunningStack(
        lab.folder / "home",
        lab.network.host_address,
        billing_period_s=str(BILLING_PERIOD_S),
        cpu_core_hour_microcredits=str(CPU_CORE_HOUR_MICROCREDITS),
        job_unreachable_limit_s=str(UNREACHABLE_LIMIT_S),
        job_end_grace_s="1",
        source_networks="127.0.0.0/8",
    )
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="package")
def platform(stack: RunningStack) -> Iterator[Platform]:
    """The administrator's view, the account in credit."""
    found = Platform(stack.url, stack.administrator_key)
    with found.http:
        account = found.get("/v1/account")["id"]
        found.post(f"/v1/accounts/{account}/credits", {"amount_microcredits": 1_000_000_000})
        yield found
        check_ledger(found)


def check_ledger(platform: Platform) -> None:
    """After everything that happened: balanced, nothing twice, and the balance is its sum."""
    moved = platform.items("/v1/transactions", limit=500)
    assert all(sum(leg["amount_microcredits"] for leg in each["postings"]) == 0 for each in moved)
    assert len({each["business_key"] for each in moved}) == len(moved)
    account = platform.get("/v1/account")
    own = f"account/{account['id']}/credits"
    legs = [leg for each in moved for leg in each["postings"] if leg["ledger_account"] == own]
    assert sum(leg["amount_microcredits"] for leg in legs) == account["balance_microcredits"]


@pytest.fixture(scope="package")
def provider(platform: Platform) -> str:
    made = platform.post("/v1/providers", {"kind": "physical"})
    return str(platform.until_status(f"/v1/providers/{made['id']}", "ready")["id"])


_numbers = count()


@pytest.fixture(scope="package")
def make_site(platform: Platform, provider: str) -> Callable[..., Site]:
    """A factory of healthy regions; everything is relaxed unless it is said otherwise."""

    def make(**changes: object) -> Site:
        body = {"provider_id": provider, "name": f"home-{next(_numbers)}",
                "relaxed_requirements": ["all"]}  # fmt: skip
        region = platform.post("/v1/regions", {**body, **changes})["id"]
        platform.until_status(f"/v1/regions/{region}", "healthy")
        return Site(platform, region)

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
