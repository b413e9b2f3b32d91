"""How the workers of one job find each other: their addresses, and a port on the first one's node.

The names are those that PyTorch, and what is built on it, read by themselves.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence

from sqlmodel import Session, col, select

from activities.db.tables import Allocation
from workflows.contracts.jobs import WorkerAssignment

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORT_COUNT = 20_000, 10_000
"""Below the ports that systems hand out to outgoing connections."""


def hold_rendezvous_port(session: Session, job_id: str, attempt: int) -> int | None:
    """Hold a port on the node of worker 0 for its job, the same one when asked again.

    None: the job has one worker, or says itself which port its workers listen at.
    """
    query = select(Allocation).where(Allocation.job_id == job_id, Allocation.attempt == attempt)
    workers = {each.worker: each for each in session.exec(query.order_by(col(Allocation.worker)))}
    first = workers.get(0)
    if first is None or len(workers) == 1 or any(each.port for each in list(workers.values())[1:]):
        return None
    if first.port is None:
        held = select(Allocation.port).where(
            Allocation.node_id == first.node_id,
            col(Allocation.released_at).is_(None),
            col(Allocation.port).is_not(None),
        )
        taken = set(session.exec(held))
        first.port = next(port for port in _ports(job_id, attempt) if port not in taken)
        session.add(first)
        session.flush()
    return first.port


def variables(
    worker: int, assignments: Sequence[WorkerAssignment], hosts: Mapping[str, str], port: int | None
) -> dict[str, str]:
    """The variables by which this worker finds the others.

    hosts: node id to the address at which other nodes of its network reach it.
    """
    own = next(each.node.node_id for each in assignments if each.worker == worker)
    addresses = [
        LOOPBACK if each.node.node_id == own else hosts.get(each.node.node_id, each.node.host)
        for each in sorted(assignments, key=lambda each: each.worker)
    ]
    found = {"BASELOAD_WORKER_ADDRESSES": ",".join(addresses)}
    if len(addresses) > 1:
        rank, size = str(worker), str(len(addresses))
        found |= {"MASTER_ADDR": addresses[0], "RANK": rank, "NODE_RANK": rank, "WORLD_SIZE": size}
    if port is not None:
        found["MASTER_PORT"] = str(port)
    return found


def _ports(job_id: str, attempt: int) -> Iterator[int]:
    """All ports of the range, beginning where no other job is likely to."""
    start = zlib.crc32(f"{job_id}-{attempt}".encode())
    return (FIRST_PORT + (start + step) % PORT_COUNT for step in range(PORT_COUNT))
