"""Deployments: revisions of configurations on their way to devices, in steps."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.deployments import (
    Deployment,
    DeploymentCreation,
    DeploymentDevicePage,
    DeploymentPage,
)
from api.services import deployments
from api.services.lifecycles import status_code
from api.services.ownership import own
from workflows.contracts.deployments import DeploymentAction, DeploymentStatus, TargetState

router = APIRouter(prefix="/v1/device-deployments", tags=["devices"])
Reader = Annotated[Caller, Depends(Needs("device-deployments:read"))]
Writer = Annotated[Change, changing("device-deployments:write")]
_ORDERS = {
    DeploymentAction.PAUSE: "Ask no more devices until the deployment is resumed.",
    DeploymentAction.RESUME: "Go on with a paused deployment.",
    DeploymentAction.STOP: "End a deployment; devices that were asked already follow it.",
    DeploymentAction.ROLL_BACK: "End a deployment; devices that were asked return to what they ran "
    "before.",
}


@router.get("", operation_id="list_deployments")
def list_deployments(
    caller: Reader,
    paging: Paging,
    region_id: str | None = None,
    status: str | None = None,
    configuration_id: str | None = None,
) -> DeploymentPage:
    """The account's deployments, those that have ended too."""
    table = tables.DeviceDeployment
    rows = select(table).where(table.account_id == caller.account_id)
    for column, wanted in (
        (table.region_id, region_id),
        (table.status, status_code(status, DeploymentStatus)),
        (table.configuration_id, configuration_id),
    ):
        if wanted is not None:
            rows = rows.where(column == wanted)
    with database().read() as session:
        view = (
            col(table.id),
            lambda found: deployments.deployment_responses(session, caller, found),
        )
        return page(session, DeploymentPage, rows, paging, view)


@router.post("", status_code=202, operation_id="create_deployment")
async def create_deployment(asked: DeploymentCreation, change: Writer) -> Deployment:
    """Deploy a revision of a configuration to devices that are set to it.

    Devices that are away follow it when they are back. A newer deployment of a device wins.
    """
    return await change.apply(
        Deployment, lambda context: deployments.create_deployment(context, asked)
    )


@router.get("/{deployment_id}", operation_id="get_deployment")
def get_deployment(deployment_id: str, caller: Reader) -> Deployment:
    with database().read() as session:
        row = own(session, tables.DeviceDeployment, deployment_id, caller)
        return deployments.deployment_response(session, caller, row)


@router.get("/{deployment_id}/devices", operation_id="list_deployment_devices")
def list_deployment_devices(
    deployment_id: str, caller: Reader, paging: Paging, state: str | None = None
) -> DeploymentDevicePage:
    """The devices of a deployment, each with how far it is."""
    table = tables.DeploymentTarget
    wanted = status_code(state, TargetState, "state")
    with database().read() as session:
        own(session, tables.DeviceDeployment, deployment_id, caller)
        rows = select(table).where(table.deployment_id == deployment_id)
        if wanted is not None:
            rows = rows.where(table.state == wanted)
        view = (
            col(table.device_id),
            lambda found: deployments.device_responses(session, found),
        )
        return page(session, DeploymentDevicePage, rows, paging, view)


def _add_order(action: DeploymentAction) -> None:
    async def order(deployment_id: str, change: Writer) -> Deployment:
        return await change.apply(
            Deployment, lambda context: deployments.order(context, deployment_id, action)
        )

    operation_id = f"{action.value}_deployment"
    router.add_api_route(
        f"/{{deployment_id}}/{action.value.replace('_', '-')}",
        order,
        methods=["POST"],
        status_code=202,
        operation_id=operation_id,
        name=operation_id,
        description=_ORDERS[action],
    )


for _action in DeploymentAction:
    _add_order(_action)
