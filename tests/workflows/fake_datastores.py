"""The datastores of the fake world: what their servers answer, and what is kept of them."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.workflows.fake_machines import Machine, node_address
from workflows.contracts.base import Done
from workflows.contracts.datastores import DatastoreWay
from workflows.contracts.nodes import NodeAddress
from workflows.effects import datastores

REACHED = datastores.DatastoreChecked(
    is_reachable=True, is_writable=True, way=DatastoreWay.USER_SPACE
)
"""What a node sees of a datastore that is well."""


@dataclass
class Datastores:
    """Every machine of the world is an active node of their region."""

    machines: dict[str, Machine]
    forgotten_keys: set[str]
    shares: dict[str, datastores.DatastoreChecked] = field(
        default_factory=lambda: defaultdict(lambda: REACHED)
    )
    """What the server of each datastore answers."""

    def machine(self, address: NodeAddress) -> Machine:
        """The machine at an address. Raises as the real effects do."""
        raise NotImplementedError

    def find_datastore_checker(
        self, asked: datastores.FindDatastoreChecker
    ) -> datastores.DatastoreChecker:
        active = [name for name in sorted(self.machines) if name not in asked.tried]
        if not active:
            return datastores.DatastoreChecker()
        node = node_address(active[0])
        return datastores.DatastoreChecker(node=node, node_name=active[0], access="access")

    def check_datastore(self, asked: datastores.CheckDatastore) -> datastores.DatastoreChecked:
        self.machine(asked.node)
        return self.shares[asked.datastore_id]

    def forget_datastore(self, asked: datastores.ForgetDatastore) -> Done:
        self.forgotten_keys.add(asked.datastore_id)
        return Done()
