"""Nodes: machines in regions."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.nodes import Node, NodeChange, NodeCreation, NodePage, NodeReplacement
from api.services import nodes
from api.services.lifecycles import of_status
from api.services.ownership import own
from workflows.contracts.nodes import NODE_ACTIONS, NodeAction
from workflows.contracts.statuses import NodeStatus

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
Reader = Annotated[Caller, Depends(Needs("nodes:read"))]
Writer = Annotated[Change, changing("nodes:write")]


@router.get("", operation_id="list_nodes")
def list_nodes(
    caller: Reader, paging: Paging, region_id: str | None = None, status: str | None = None
) -> NodePage:
    """The account's nodes; archived ones only when asked for by status."""
    rows = select(tables.Node).where(
        tables.Node.account_id == caller.account_id,
        of_status(tables.Node, status, NodeStatus),
    )
    if region_id is not None:
        rows = rows.where(tables.Node.region_id == region_id)
    with database().read() as session:
        view = (col(tables.Node.id), lambda rows: nodes.node_responses(session, rows))
        return page(session, NodePage, rows, paging, view)


@router.post("", status_code=202, operation_id="add_node")
async def add_node(asked: NodeCreation, change: Writer) -> Node:
    """Add a machine as a node, by its minion id or, in a cloud, by its GPUs.

    The platform reaches a machine without an address once the machine has announced itself.
    """
    return await change.apply(Node, lambda context: nodes.add_node(context, asked))


@router.get("/{node_id}", operation_id="get_node")
def get_node(node_id: str, caller: Reader) -> Node:
    with database().read() as session:
        return nodes.node_response(session, own(session, tables.Node, node_id, caller))


@router.patch("/{node_id}", operation_id="change_node")
async def change_node(node_id: str, asked: NodeChange, change: Writer) -> Node:
    """Switch the idle workload of a node on or off."""
    return await change.apply(Node, lambda context: nodes.change_node(context, node_id, asked))


def _add_action(action: NodeAction) -> None:
    """Add the route of an action, with the query parameter `force` if the action takes it."""

    async def act(node_id: str, change: Writer) -> Node:
        return await change.apply(Node, lambda context: nodes.act(context, node_id, action))

    async def act_with_force(node_id: str, change: Writer, force: bool = False) -> Node:
        return await change.apply(
            Node, lambda context: nodes.act(context, node_id, action, force=force)
        )

    leads_to = {} if action.status is None else {"x-resulting-status": action.status.value}
    router.add_api_route(
        f"/{{node_id}}/{action.name}",
        act_with_force if action.takes_force else act,
        methods=["POST"],
        status_code=202,
        operation_id=action.operation_id,
        name=action.operation_id,
        description=action.summary,
        openapi_extra=leads_to,
    )


for _action in NODE_ACTIONS:
    _add_action(_action)


@router.post("/{node_id}/replace", status_code=202, operation_id="replace_node")
async def replace_node(node_id: str, change: Writer, asked: NodeReplacement | None = None) -> Node:
    """Replace a region's storage node by one on another machine, which is filled from it first.

    In a cloud the region creates the machine; elsewhere the body names one of yours.
    """
    return await change.apply(Node, lambda context: nodes.replace_node(context, node_id, asked))


@router.delete("/{node_id}", status_code=202, operation_id="remove_node")
async def remove_node(node_id: str, change: Writer, force: bool = False) -> Node:
    """Remove a node; a node with jobs only with `force`."""
    return await change.apply(
        Node, lambda context: nodes.remove_node(context, node_id, force=force)
    )
