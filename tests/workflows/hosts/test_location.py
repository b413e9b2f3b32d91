"""At which address a node is tried, and what a machine that answers there changes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflows.leases.test_machine import seen
from workflows.contracts.hosts import Announcement
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.hosts.location import HostLocation

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWN = ("10.0.0.1", 22, "root")
ANNOUNCED = ("10.0.0.9", 2222, "ada")


def location(host: str | None = "10.0.0.1", **changes: Any) -> HostLocation:
    return HostLocation(
        NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1", host=host,
            minion_id="SHA256:key", root="/srv", own_worker=True, **changes,
        )
    )  # fmt: skip


def announcement(host: str = "10.0.0.9") -> Announcement:
    return Announcement(minion_id="SHA256:key", host=host, port=2222, user="ada", at=AT)


def tried(of: HostLocation) -> tuple[str, int, str]:
    address = of.address()
    return address.host, address.port, address.user


def test_a_node_is_reached_as_it_was_added() -> None:
    address = location().address()
    assert address.model_dump(exclude_defaults=True) == {
        "node_id": "nod-1", "region_id": "reg-1", "host": "10.0.0.1", "port": 22,
        "minion_id": "SHA256:key", "root": "/srv", "own_worker": True,
    }  # fmt: skip


def test_a_node_without_an_address_has_none_until_its_machine_is_announced() -> None:
    it = location(host=None)
    assert not it.is_known
    with pytest.raises(ApplicationError, match="node n1: has no address"):
        it.address()
    it.take(None)
    assert not it.is_known
    it.take(announcement())
    assert it.is_known
    assert tried(it) == ANNOUNCED


def test_an_announced_address_is_tried_and_kept_only_where_the_node_answers() -> None:
    it = location()
    it.try_announced(announcement())
    assert it.uses_announced
    assert tried(it) == ANNOUNCED
    it.confirm("boot-2")
    assert (it.host, it.port, it.user, it.boot_id) == (*ANNOUNCED, "boot-2")
    assert not it.uses_announced
    assert not it.try_other(is_another=False)


def test_an_announcement_of_the_address_that_is_known_is_no_other() -> None:
    it = location()
    it.take(announcement())
    it.try_announced(announcement())
    assert not it.uses_announced
    assert not it.try_other(is_another=False)


def test_tries_at_an_announced_address_and_at_the_nodes_own_take_turns() -> None:
    it = location()
    it.try_announced(announcement())
    assert it.try_other(is_another=False)
    assert tried(it) == OWN
    assert it.try_other(is_another=False)
    assert tried(it) == ANNOUNCED
    it.try_other(is_another=False)
    it.confirm("boot-1")
    assert (it.host, it.port, it.user) == OWN


def test_an_address_at_which_another_machine_answers_is_dropped() -> None:
    it = location()
    it.try_announced(announcement())
    assert it.try_other(is_another=True)
    assert tried(it) == OWN
    assert not it.try_other(is_another=True)
    assert tried(it) == OWN


def test_the_nodes_own_address_is_given_up_where_another_machine_answers() -> None:
    it = location()
    it.try_announced(announcement())
    it.try_other(is_another=False)
    assert it.try_other(is_another=True)
    assert tried(it) == ANNOUNCED
    assert (it.host, it.port, it.user) == ANNOUNCED


def test_another_machine_has_its_own_address_and_key_and_was_not_inspected() -> None:
    it = location()
    it.confirm("boot-1")
    it.inspected_boot_id = "boot-1"
    it.try_announced(announcement())
    it.replace_machine(seen(host="10.0.0.2", port=23, user="bob", minion_id="SHA256:other"))
    assert tried(it) == ("10.0.0.2", 23, "bob")
    assert it.is_at("SHA256:other")
    assert not it.is_at("SHA256:key")
    assert (it.boot_id, it.inspected_boot_id, it.uses_announced) == ("", "", False)


def test_a_machine_has_restarted_unless_it_was_inspected_since() -> None:
    it = location()
    it.confirm("boot-1")
    assert it.has_restarted
    it.inspected_boot_id = "boot-1"
    assert not it.has_restarted


def test_the_row_of_a_node_has_its_address_and_the_key_of_a_leased_machine() -> None:
    assert location().changes().model_dump(exclude_none=True) == {
        "host": "10.0.0.1", "port": 22, "user": "root",
    }  # fmt: skip


def test_a_later_run_knows_where_the_node_is() -> None:
    progress = NodeProgress(
        sequence=1, status=NodeStatus.ACTIVE, resume_status=NodeStatus.ACTIVE, host="10.0.0.9",
        port=2222, user="ada", root=None, boot_id="boot-2", inspected_boot_id="boot-1",
    )  # fmt: skip
    it = location(resumed_from=progress)
    assert tried(it) == ANNOUNCED
    assert (it.boot_id, it.inspected_boot_id, it.minion_id) == ("boot-2", "boot-1", "SHA256:key")
