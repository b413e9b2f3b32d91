"""The transfer of an artifact from a datastore, which a node of its region reads."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.artifacts import Content, RegionalSource
from workflows.contracts.errors import DATASTORE_AWAY, NODE_UNREACHABLE, UNAVAILABLE
from workflows.effects.datastores import (
    FindDatastoreReader,
    TransferFromDatastore,
    find_datastore_reader,
    transfer_from_datastore,
)
from workflows.primitives.failures import EFFECT_FAILED, cause_of

ROUNDS = 12
PAUSE = timedelta(minutes=5)
"""Between two rounds: a node that restarts, or a server, is back by then."""
_ASKS_ANOTHER = (NODE_UNREACHABLE, DATASTORE_AWAY)
MOST_NODES = 3
"""How many nodes are asked in one round."""


async def transfer_regional(artifact_id: str, source: RegionalSource) -> Content:
    """The content, once a node has read it and it is stored.

    Raises: the failure of the transfer; ApplicationError `Unavailable`, when in an hour no node of
    the region could be asked or has reached the datastore.
    """
    words = "the region of the datastore has no active node"
    for turn in range(ROUNDS):
        if turn:
            await workflow.sleep(PAUSE, summary="until a node of the region can be asked")
        tried: list[str] = []
        while len(tried) < MOST_NODES:
            find = FindDatastoreReader(artifact_id=artifact_id, source=source, tried=tuple(tried))
            reader = await find_datastore_reader(find)
            if reader.node is None:
                break
            tried.append(reader.node.node_id)
            command = TransferFromDatastore(
                node=reader.node,
                artifact_id=artifact_id,
                source=source,
                access=reader.access,
                most_bytes=reader.most_bytes,
            )
            try:
                return await transfer_from_datastore(command)
            except EFFECT_FAILED as failure:
                kind, words = cause_of(failure)
                if kind not in _ASKS_ANOTHER:
                    raise
    raise ApplicationError(words, type=UNAVAILABLE)
