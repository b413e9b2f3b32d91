"""What the checks of datastores need of their rows. As activities/datastores/checks.py."""

from typing import Any, cast

from temporalio.exceptions import ApplicationError

from activities.nodes.addresses import address_of
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.records import Datastore
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.statuses import NodeStatus
from workflows.effects.datastores import (
    DatastoreChecker,
    DatastoreReader,
    FindDatastoreChecker,
    FindDatastoreReader,
    ForgetDatastore,
)


class Datastores:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def effects(self) -> dict[str, Handler]:
        return {
            "find_datastore_checker": self._find_datastore_checker,
            "find_datastore_reader": self._find_datastore_reader,
            "forget_datastore": self._forget_datastore,
        }

    def _find_datastore_checker(
        self, attempt: Attempt, command: FindDatastoreChecker
    ) -> DatastoreChecker:
        """The first active node that was not tried. Raises: NotFound."""
        row: Datastore | None = self._tables.datastores.get(command.datastore_id)
        if row is None:
            raise ApplicationError(f"{command.datastore_id}: is not there", type=NOT_FOUND)
        for node in self._tables.live_nodes(row.region_id):
            is_active = node.status == NodeStatus.ACTIVE and node.host is not None
            if is_active and node.id not in command.tried:
                region = cast("Any", self._tables.regions[row.region_id])
                address = address_of(cast("Any", node), region)
                return DatastoreChecker(
                    node=address, node_name=node.name, access=f"datastores/{row.id}"
                )
        return DatastoreChecker()

    def _find_datastore_reader(
        self, attempt: Attempt, command: FindDatastoreReader
    ) -> DatastoreReader:
        """As the checker, for an artifact that is there. Raises: NotFound."""
        asked = FindDatastoreChecker(datastore_id=command.source.datastore_id, tried=command.tried)
        found = self._find_datastore_checker(attempt, asked)
        return DatastoreReader(node=found.node, access=found.access, most_bytes=1 << 40)

    def _forget_datastore(self, attempt: Attempt, command: ForgetDatastore) -> Done:
        row = self._tables.datastores.get(command.datastore_id)
        if row is not None:
            with self._tables.write():
                self._tables.set(row, has_password=False)
        return Done()
