"""Under which conditions this host may be lent."""

import pytest

from activities.db.session import Database
from activities.providers.local.catalogue import local_offers
from activities.providers.local.conditions import check_host, is_this_host, node_of_this_host
from activities.settings import settings
from tests.activities.rows import add_node, add_payer, add_region


def statuses() -> dict[str, str]:
    return {check.name: check.status for check in check_host("prv-1")}


def test_nothing_is_lent_unless_the_installation_says_so(migrated: Database) -> None:
    assert statuses() == {"trusted-local": "failed", "loopback": "failed", "no-node": "passed"}
    assert all(check.fix for check in check_host("prv-1") if check.status == "failed")


def test_a_trusted_host_whose_loopback_is_open_is_lent(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_TRUSTED_LOCAL", "true")
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "10.0.0.0/8,127.0.0.0/8")
    settings.cache_clear()
    assert set(statuses().values()) == {"passed"}


def test_a_host_that_is_a_node_is_not_lent_until_the_node_is_removed(migrated: Database) -> None:
    with migrated.write() as session:
        node = add_node(session, add_region(session, add_payer(session)))
    assert statuses()["no-node"] == "failed"
    (fix,) = [check.fix for check in check_host("prv-1") if check.name == "no-node"]
    assert f"(baseload node rm {node.id})" in fix
    assert node_of_this_host() == node.id
    with migrated.write() as session:
        row = session.merge(node)
        row.status = "archived"
    assert node_of_this_host() is None


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("x", False)],
)
def test_this_host_is_known_by_its_addresses(host: str, is_here: bool) -> None:
    assert is_this_host(host) == is_here


def test_this_host_is_offered_free_of_charge_without_gpus_first() -> None:
    first, *others = local_offers("prv-1")
    assert (first.machine.gpu_type, first.machine.gpu_count) == (None, 0)
    assert first.cpu_count >= 1
    assert first.memory_bytes > 0
    assert {offer.machine.microcredits_per_hour for offer in (first, *others)} == {0}
    assert all(offer.machine.gpu_count for offer in others)
