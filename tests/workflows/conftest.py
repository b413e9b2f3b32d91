"""One Temporal server for all workflow tests; a world of its own for each."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.task_queues import task_queues
from tests.workflows.fake_world import REGION, World
from workers.registry import WORKFLOWS, workflow_runner
from workers.serving import serving
from workflows.contracts import queues
from workflows.contracts.hosts import Announcement
from workflows.contracts.jobs import JobReport, JobRequest
from workflows.contracts.nodes import NodeReport, NodeRequest
from workflows.contracts.statuses import JobType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle


@dataclass
class Stage:
    """A world, the workers that serve it, and ways to start lifecycles in it."""

    client: Client
    world: World

    async def job(
        self, job_type: JobType = JobType.TRAINING, job_id: str = "", **changes: Any
    ) -> WorkflowHandle[JobLifecycle, JobReport]:
        job_id = job_id or f"job-{uuid.uuid4().hex[:12]}"
        request = JobRequest(
            job_id=job_id,
            account_id="acc-1",
            project_id="prj-1",
            name="digits",
            type=job_type,
            grace_s=1,
            **changes,
        )
        return await self.client.start_workflow(
            JobLifecycle.run, request, id=f"job/{job_id}", task_queue=queues.MAIN
        )

    async def node(
        self, workflow_id: str = "", **changes: Any
    ) -> WorkflowHandle[NodeLifecycle, NodeReport]:
        """Start a node; jobs can signal it themselves where its workflow id is `node/nod-1`."""
        values = {
            "host": "10.0.0.1",
            "minion_id": "SHA256:key",
            "relaxed_requirements": ("all",),
            **changes,
        }
        request = NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id=REGION, name="n1",
            **values,
        )  # fmt: skip
        workflow_id = workflow_id or f"node/{uuid.uuid4().hex[:12]}"
        self.world.holders["nod-1"] = workflow_id
        return await self.client.start_workflow(
            NodeLifecycle.run, request, id=workflow_id, task_queue=queues.MAIN
        )

    async def want(self, handle: WorkflowHandle[Any, Any], status: str) -> None:
        """Ask the node for a status, as the API does: in its row, with a wake."""
        self.world.want("nod-1", status)
        await handle.signal(NodeLifecycle.wake)

    async def announce(self, handle: WorkflowHandle[Any, Any], announced: Announcement) -> None:
        """Announce the node's machine, as the API does while the node is not connected."""
        self.world.announcements[announced.minion_id] = announced.model_copy(
            update={"at": datetime.now(UTC)}
        )
        await handle.signal(NodeLifecycle.wake)


@asynccontextmanager
async def served(client: Client) -> AsyncIterator[Stage]:
    """A world of its own, with workers for every queue; its workflows end with it."""
    world = World(client=client)
    async with at_work(client, world):
        yield Stage(client, world)
        await end_open_workflows(client)


@asynccontextmanager
async def at_work(
    client: Client, world: World, workflows: Sequence[type[Any]] = WORKFLOWS
) -> AsyncIterator[None]:
    """Workers for every queue of that world; what is open when they stop stays open."""
    activities = world.activities()
    workers = [
        Worker(
            client,
            task_queue=queue,
            workflows=workflows if queue == queues.MAIN else [],
            activities=activities,
            workflow_runner=workflow_runner(),
            graceful_shutdown_timeout=timedelta(0),
        )
        for queue in task_queues()
    ]
    async with serving(*workers):
        yield


@pytest_asyncio.fixture
async def stage(temporal_server: Client) -> AsyncIterator[Stage]:
    async with served(temporal_server) as stage:
        yield stage


async def end_open_workflows(client: Client, *known: str) -> None:
    """Terminate what Temporal lists as running, and these workflows, which it may not list yet."""
    listed = [found.id async for found in client.list_workflows("ExecutionStatus = 'Running'")]
    for workflow_id in dict.fromkeys((*known, *listed)):
        try:
            await client.get_workflow_handle(workflow_id).terminate("the test has ended")
        except RPCError as cause:  # it has just ended: visibility follows later
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise
