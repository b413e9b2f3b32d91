"""How a site reaches a machine: by its address, and only if it has the expected host key."""

from tests.simulation.outside import failures
from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines
from workflows.contracts.nodes import NodeAddress


def reach(machines: Machines, node: NodeAddress) -> Machine:
    """The machine of a node.

    Raises: ApplicationError, as activities/site/node_client.py:NodeClient, with nothing done.
    """
    machine = machines.by_host.get(node.host)
    if machine is None or not machine.is_reachable:
        raise failures.unreachable(node)
    if machine.minion_id != node.minion_id:
        raise failures.other_host_key(node)
    if not machine.is_leased and (not machine.has_joined or node.region_id in machine.left):
        raise failures.login_refused(node)
    machines.by_node[node.node_id] = machine
    machine.regions.add(node.region_id)
    if machine.is_lying:
        raise failures.protocol_violation(node)
    return machine
