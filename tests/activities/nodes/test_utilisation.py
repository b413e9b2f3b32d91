"""What the watches of nodes say in their heartbeats, read from a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.nodes.utilisation import UtilisationReader
from activities.temporal.client import set_client
from tests.activities.watch_workflow import Holding, HoldWatch
from tests.waiting import eventually
from workers.registry import workflow_runner
from workflows.contracts.nodes import NodeAddress, WatchEnded
from workflows.contracts.utilisation import GpuUtilisation, NodeUtilisation
from workflows.effects.nodes import WatchNode

QUEUE = "utilisation"


@asynccontextmanager
async def watched(client: Client, *words: str) -> AsyncIterator[list[str]]:
    """The ids of nodes whose watches say these words in their heartbeats."""
    node_ids = [f"nod-{datetime.now(UTC).timestamp()}-{index}" for index in range(len(words))]
    said = dict(zip(node_ids, words, strict=True))

    @activity.defn(name="watch_node")
    async def watch(asked: WatchNode) -> WatchEnded:
        while True:
            activity.heartbeat(said[asked.node.node_id])
            await asyncio.sleep(0.1)

    set_client(client)
    site = "reg-1"
    address = NodeAddress(node_id="", region_id=site, host="h", port=1, minion_id="m")
    workers = [
        Worker(client, task_queue=QUEUE, workflows=[HoldWatch], workflow_runner=workflow_runner()),
        Worker(client, task_queue="site", activities=[watch]),
    ]
    async with workers[0], workers[1]:
        handles = [
            await client.start_workflow(
                HoldWatch.run,
                Holding(node=address.model_copy(update={"node_id": node_id})),
                id=f"node/{node_id}",
                task_queue=QUEUE,
            )
            for node_id in node_ids
        ]
        yield node_ids
        for handle in handles:
            await handle.terminate()


def measured(at: datetime) -> NodeUtilisation:
    return NodeUtilisation(at=at, gpus=(GpuUtilisation(uuid="GPU-1", percent=87),))


async def test_the_last_measurement_of_a_node_is_read_and_no_old_or_broken_one(
    temporal_server: Client,
) -> None:
    now = datetime.now(UTC)
    fresh, old = measured(now), measured(now - timedelta(minutes=5))
    words = fresh.model_dump_json(), old.model_dump_json(), "staging: 3 of 9"
    async with watched(temporal_server, *words) as node_ids:

        async def is_read() -> bool:
            found = await UtilisationReader().of_nodes([*node_ids, "nod-unknown"])
            return found == {node_ids[0]: fresh}

        await eventually(is_read, "the measurement is read", limit_s=20)
        assert await UtilisationReader().of_nodes(node_ids[1:]) == {}


async def test_nothing_is_known_where_temporal_does_not_answer() -> None:
    set_client(await Client.connect("127.0.0.1:1", lazy=True))
    async with asyncio.timeout(10):
        assert await UtilisationReader().of_nodes(["nod-1"]) == {}
