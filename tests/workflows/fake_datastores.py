"""The datastores of the fake world: what their servers answer, and what is kept of them."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.workflows.fake_artifacts import CONTENT
from tests.workflows.fake_machines import Machine, node_address
from workflows.contracts.artifacts import Content
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

    contents: dict[str, Content] = field(default_factory=dict)
    """As of `Artifacts`."""
    read_by: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The nodes that have read each artifact's source from a datastore."""

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

    def find_datastore_reader(
        self, asked: datastores.FindDatastoreReader
    ) -> datastores.DatastoreReader:
        active = [name for name in sorted(self.machines) if name not in asked.tried]
        if not active:
            return datastores.DatastoreReader()
        node = node_address(active[0])
        return datastores.DatastoreReader(node=node, access="access", most_bytes=1 << 40)

    def transfer_from_datastore(self, asked: datastores.TransferFromDatastore) -> Content:
        self.machine(asked.node)
        self.read_by[asked.artifact_id].append(asked.node.node_id)
        self.contents[asked.artifact_id] = CONTENT
        return CONTENT

    def forget_datastore(self, asked: datastores.ForgetDatastore) -> Done:
        self.forgotten_keys.add(asked.datastore_id)
        return Done()
