"""Which machines are told of a cache, and of which."""

from typing import Any

import pytest

from activities.db import tables
from activities.db.session import Database
from activities.regions.cache import caches_of
from tests.activities.rows import add_node, add_payer, add_region
from workflows.contracts.nodes import Preparation

PLACE = "10.128.0.2:8710"
PREPARED = Preparation(cache=PLACE).model_dump(mode="json")


class Place:
    """A region with a storage node, a leased machine and an owned one."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            self.region = add_region(session, add_payer(session))
            self.leased = self.add(session, "leased", machine={}).id
            self.owned = self.add(session, "owned").id
            storage = self.add(session, "s1", services=["storage"], preparation=PREPARED)
            self.storage = storage.id

    def add(self, session: Any, name: str, **changes: Any) -> tables.Node:
        node = add_node(session, self.region, name).sqlmodel_update(changes)
        session.add(node)
        session.flush()
        return node

    def change(self, **changes: Any) -> None:
        """Change the row of the storage node."""
        with self.database.write() as session:
            session.add(session.get_one(tables.Node, self.storage).sqlmodel_update(changes))

    def caches(self) -> dict[str, tuple[str, str]]:
        with self.database.read() as session:
            found = caches_of(session, {self.leased, self.owned})
        return {node_id: (cache.node.node_id, cache.address) for node_id, cache in found.items()}


@pytest.fixture
def place(migrated: Database) -> Place:
    return Place(migrated)


def test_leased_machines_are_told_of_their_regions_cache_and_owned_ones_of_none(
    place: Place,
) -> None:
    assert place.caches() == {place.leased: (place.storage, PLACE)}


def test_owned_machines_of_a_central_region_use_it_for_packages_of_their_own_index_alone(
    place: Place,
) -> None:
    with place.database.write() as session:
        region = session.get_one(tables.Region, place.region.id)
        session.add(region.sqlmodel_update({"storage_mode": "central"}))
    assert place.caches() == {
        place.leased: (place.storage, PLACE),
        place.owned: (place.storage, PLACE),
    }
    with place.database.read() as session:
        found = caches_of(session, {place.leased, place.owned})
    assert (found[place.leased].has_packages, found[place.leased].wants_same_index) == (True, False)
    assert not found[place.owned].has_packages  # It does not speak TLS, and nobody asks it.
    place.change(preparation={**PREPARED, "cache_is_secure": True})
    with place.database.read() as session:
        found = caches_of(session, {place.owned})
    assert (found[place.owned].has_packages, found[place.owned].wants_same_index) == (True, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "offline"},
        {"status": "removing"},
        {"preparation": Preparation().model_dump(mode="json")},
        {"preparation": None},
    ],
    ids=str,
)
def test_where_no_cache_is_served_none_is_told_of(place: Place, changes: dict[str, Any]) -> None:
    place.change(**changes)
    assert place.caches() == {}


def test_beside_one_that_is_replaced_the_newer_is_told_of(place: Place) -> None:
    other = Preparation(cache="10.128.0.9:8710").model_dump(mode="json")
    with place.database.write() as session:
        newer = place.add(session, "s2", services=["storage"], preparation=other).id
    assert place.caches() == {place.leased: (newer, "10.128.0.9:8710")}


def test_a_replacement_serves_when_the_old_storage_node_is_away_or_goes(place: Place) -> None:
    with place.database.write() as session:
        new = place.add(
            session, "s2", services=["storage"], preparation=PREPARED, fills_from=place.storage
        ).id
    assert place.caches()[place.leased][0] == place.storage
    for status in ("offline", "removing", "archived"):
        place.change(status=status)
        assert place.caches()[place.leased][0] == new
    place.change(status="active", preparation=None)
    assert place.caches()[place.leased][0] == new
