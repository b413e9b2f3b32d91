"""What a node's workflow asks of the rows: its announcement, its neighbours, what runs on it."""

import asyncio

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Node, NodeAnnouncement, Region
from activities.lifecycle_requests import workflow_id_of
from activities.temporal import id_of_this_activity, tell
from activities.usage import post_worker_usage
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.jobs import EndRequest, NodeBack, NodeLost, run_id
from workflows.contracts.nodes import Announcement, NodeAddress, RunSeen
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    AnnouncementFound,
    BillStrays,
    FindAnnouncement,
    FindNodeRuns,
    FindPeers,
    JobsTold,
    NodeRunsFound,
    PeersFound,
    TellJobs,
)

_ONBOARD = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE)
_SIGNALS_AT_ONCE = 32


@activity.defn
def find_announcement(command: FindAnnouncement) -> AnnouncementFound:
    """What the machine with this key has last said of itself."""
    with database().read() as session:
        row = session.get(NodeAnnouncement, command.minion_id)
    if row is None:
        return AnnouncementFound()
    announcement = Announcement(
        minion_id=row.minion_id, host=row.host, port=row.port, user=row.user
    )
    return AnnouncementFound(announcement=announcement)


@activity.defn
def find_peers(command: FindPeers) -> PeersFound:
    """The region's other nodes that are up: the new one must reach them."""
    query = (
        select(Node, Region)
        .join(Region, col(Region.id) == Node.region_id)
        .where(
            col(Node.region_id) == command.region_id,
            col(Node.id) != command.node_id,
            col(Node.status).in_(_ONBOARD),
            col(Node.host).is_not(None),
        )
        .order_by(col(Node.id))
    )
    with database().read() as session:
        rows = session.exec(query).all()
    return PeersFound(peers=tuple(_address(node, region) for node, region in rows))


@activity.defn
def find_node_runs(command: FindNodeRuns) -> NodeRunsFound:
    """The runs that live allocations hold on the node, and their jobs."""
    with database().read() as session:
        live = _live(session, command.node_id)
    return NodeRunsFound(
        run_ids=tuple(run_id(held.job_id, held.worker, held.attempt) for held in live),
        job_ids=tuple(dict.fromkeys(held.job_id for held in live)),
    )


@activity.defn
async def tell_jobs(command: TellJobs) -> JobsTold:
    """Signal every job on the node. A job that has ended meanwhile needs no telling.

    Raises: ApplicationError, to be tried again, once all were tried and some could not be told.
    """
    found = await asyncio.to_thread(find_node_runs, FindNodeRuns(node_id=command.node_id))
    signal, argument = await asyncio.to_thread(_message, command)
    turns = asyncio.Semaphore(_SIGNALS_AT_ONCE)
    request_id = id_of_this_activity()

    async def one(job_id: str) -> str | None:
        async with turns:
            try:
                await tell(workflow_id_of(job_id), signal, argument, request_id=request_id)
            except (RPCError, ApplicationError) as cause:
                return f"{job_id}: {cause}"
            return None

    untold = [said for said in await asyncio.gather(*map(one, found.job_ids)) if said]
    if untold:
        raise ApplicationError(f"{signal}: {len(untold)} jobs not told, first {untold[0]}")
    return JobsTold(job_ids=found.job_ids)


@activity.defn
def bill_strays(command: BillStrays) -> Done:
    """Post what runs had measured that ended unseen; jobs that are not ours are passed over.

    Raises: the first refusal, once all were tried.
    """
    refused: ApplicationError | None = None
    for run in command.runs:
        try:
            with database().write() as session:
                usage = _usage_of(session, run)
                if usage is not None:
                    post_worker_usage(session, usage)
        except ApplicationError as refusal:
            refused = refused or refusal
    if refused is not None:
        raise refused
    return Done()


def _usage_of(session: Session, run: RunSeen) -> WorkerUsage | None:
    """None: nothing was ever placed here under this name, or nothing was measured."""
    placed_at = session.exec(
        select(Allocation.created_at).where(
            col(Allocation.job_id) == run.job_id,
            col(Allocation.worker) == run.worker,
            col(Allocation.attempt) == run.attempt,
        )
    ).first()
    if placed_at is None or run.elapsed_s < 1:
        return None
    return WorkerUsage(
        job_id=run.job_id,
        worker=run.worker,
        attempt=run.attempt,
        started_at=run.started_at or placed_at,
        through_s=int(run.elapsed_s),
    )


def _message(command: TellJobs) -> tuple[str, Contract]:
    if command.what == "lost":
        return "node_lost", NodeLost(node_id=command.node_id, reason=command.reason)
    if command.what == "ended":
        lost = NodeLost(
            node_id=command.node_id,
            reason=command.reason,
            for_good=True,
            ended_at=command.ended_at,
        )
        return "node_lost", lost
    if command.what == "back":
        return "node_back", NodeBack(node_id=command.node_id, node=_where(command.node_id))
    removed = EndRequest(
        reason=command.reason,
        code="node-removed",
        node_id=command.node_id,
        is_gone=command.what == "gone",
    )
    return "stop", removed


def _where(node_id: str) -> NodeAddress | None:
    """It may have moved while it was away, and a job knows where it was."""
    with database().read() as session:
        node = session.get(Node, node_id)
        if node is None or node.host is None:
            return None
        return _address(node, session.get_one(Region, node.region_id))


def _live(session: Session, node_id: str) -> list[Allocation]:
    query = (
        select(Allocation)
        .where(col(Allocation.node_id) == node_id, col(Allocation.released_at).is_(None))
        .order_by(col(Allocation.job_id), col(Allocation.worker))
    )
    return list(session.exec(query).all())


def _address(node: Node, region: Region) -> NodeAddress:
    if node.host is None:
        raise ValueError(f"node {node.id}: has no address")
    return NodeAddress(
        node_id=node.id,
        region_id=node.region_id,
        host=node.host,
        port=node.port,
        user=node.user,
        minion_id=node.minion_id,
        root=region.node_root,
    )
