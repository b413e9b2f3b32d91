"""Device configurations: what devices run, in revisions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.device_configurations import (
    DescribedDeviceConfiguration,
    DeviceConfiguration,
    DeviceConfigurationChange,
    DeviceConfigurationCreation,
    DeviceConfigurationPage,
    DeviceRevision,
    DeviceRevisionDiff,
)
from api.services import device_configurations as configurations

router = APIRouter(prefix="/v1/device-configurations", tags=["devices"])
Reader = Annotated[Caller, Depends(Needs("device-configurations:read"))]
Writer = Annotated[Change, changing("device-configurations:write")]
Number = Annotated[int, Path(ge=1, le=configurations.MOST_REVISIONS)]


@router.get("", operation_id="list_device_configurations")
def list_device_configurations(
    caller: Reader, paging: Paging, region_id: str | None = None
) -> DeviceConfigurationPage:
    """The account's device configurations, each with how many devices have it."""
    table = tables.DeviceConfiguration
    rows = select(table).where(
        table.account_id == caller.account_id, col(table.removed_at).is_(None)
    )
    if region_id is not None:
        rows = rows.where(table.region_id == region_id)
    with database().read() as session:
        view = (
            col(table.id),
            lambda found: configurations.configuration_responses(session, found),
        )
        return page(session, DeviceConfigurationPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_device_configuration")
async def create_device_configuration(
    asked: DeviceConfigurationCreation, change: Writer
) -> DescribedDeviceConfiguration:
    """Create a configuration with its first revision."""
    return await change.apply(
        DescribedDeviceConfiguration,
        lambda context: configurations.create_configuration(context, asked),
    )


@router.get("/{configuration_id}", operation_id="get_device_configuration")
def get_device_configuration(configuration_id: str, caller: Reader) -> DescribedDeviceConfiguration:
    """A configuration with its latest revision and a list of its revisions."""
    with database().read() as session:
        row = configurations.own_configuration(session, configuration_id, caller)
        return configurations.described_configuration(session, caller, row)


@router.patch("/{configuration_id}", operation_id="change_device_configuration")
async def change_device_configuration(
    configuration_id: str, asked: DeviceConfigurationChange, change: Writer
) -> DescribedDeviceConfiguration:
    """Make the next revision: the fields that are sent differ from the latest one.

    Devices run it once it is deployed. A change of nothing makes no revision.
    """
    return await change.apply(
        DescribedDeviceConfiguration,
        lambda context: configurations.change_configuration(context, configuration_id, asked),
    )


@router.get("/{configuration_id}/revisions/{revision}", operation_id="get_device_revision")
def get_device_revision(configuration_id: str, revision: Number, caller: Reader) -> DeviceRevision:
    """A revision; the values of variables are never shown."""
    with database().read() as session:
        row = configurations.own_configuration(session, configuration_id, caller)
        found = configurations.revision_of(session, row.id, revision)
        return configurations.revision_response(session, caller, found)


@router.get("/{configuration_id}/diff", operation_id="diff_device_revisions")
def diff_device_revisions(
    configuration_id: str,
    caller: Reader,
    earlier: Annotated[int, Query(alias="from", ge=1, le=configurations.MOST_REVISIONS)],
    later: Annotated[int, Query(alias="to", ge=1, le=configurations.MOST_REVISIONS)],
) -> DeviceRevisionDiff:
    """The fields in which two revisions differ; of variables only the names."""
    with database().read() as session:
        row = configurations.own_configuration(session, configuration_id, caller)
        return configurations.diff(session, row.id, earlier, later)


@router.delete("/{configuration_id}", operation_id="remove_device_configuration")
async def remove_device_configuration(configuration_id: str, change: Writer) -> DeviceConfiguration:
    """Remove a configuration that no device has."""
    return await change.apply(
        DeviceConfiguration,
        lambda context: configurations.remove_configuration(context, configuration_id),
    )
