"""Rows to start from: a configuration of two revisions, its devices, and a deployment to them."""

from collections.abc import Sequence

from sqlmodel import Session, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.secrets.sealing import secret_box
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.deployments import RolloutPolicy
from workflows.contracts.device_configurations import DeviceDocument


def add_configuration(session: Session, **document: object) -> tables.DeviceConfiguration:
    """Revision 1 and 2 are alike, by default."""
    account = add_payer(session)
    region = add_region(session, account)
    project = session.exec(
        select(tables.Project).where(tables.Project.account_id == account.id)
    ).one()
    row = tables.DeviceConfiguration(
        id=new_id("dcf"),
        account_id=account.id,
        region_id=region.id,
        project_id=project.id,
        name="detector",
        latest_revision=2,
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(row)
    session.flush()
    given = DeviceDocument.model_validate({"command": "sh serve.sh", **document})
    for revision in (1, 2):
        sealed_for = f"{row.id}/{revision}".encode()
        session.add(
            tables.DeviceRevision(
                configuration_id=row.id,
                revision=revision,
                document=given.model_dump(mode="json"),
                sealed_variables=secret_box("variables").seal(b'{"A": "1"}', sealed_for),
                created_at=NOW,
            )
        )
    session.flush()
    return row


def add_device(
    session: Session, configuration: tables.DeviceConfiguration, name: str, status: str = "active"
) -> tables.Device:
    row = tables.Device(
        id=new_id("dev"),
        account_id=configuration.account_id,
        region_id=configuration.region_id,
        name=name,
        status=status,
        minion_id=f"SHA256:{name}",
        host="10.0.0.1",
        configuration_id=configuration.id,
        requirements=[],
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(row)
    session.flush()
    return row


def add_deployment(
    session: Session,
    configuration: tables.DeviceConfiguration,
    devices: Sequence[tables.Device],
    revision: int = 1,
) -> tables.DeviceDeployment:
    row = tables.DeviceDeployment(
        id=new_id("dpl"),
        account_id=configuration.account_id,
        region_id=configuration.region_id,
        name=f"detector/{revision}",
        status="rolling_out",
        configuration_id=configuration.id,
        revision=revision,
        policy=RolloutPolicy().model_dump(mode="json"),
        counts={},
        requested_by="ada",
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(row)
    session.flush()
    for device in devices:
        session.add(
            tables.DeploymentTarget(deployment_id=row.id, device_id=device.id, updated_at=NOW)
        )
    session.flush()
    return row


def device_of(database: Database, device_id: str) -> tables.Device:
    with database.read() as session:
        return session.get_one(tables.Device, device_id)


def states_of(database: Database, deployment_id: str) -> dict[str, str]:
    """The state of each target, by the name of its device."""
    query = (
        select(tables.Device.name, tables.DeploymentTarget.state)
        .join(tables.Device)
        .where(tables.DeploymentTarget.deployment_id == deployment_id)
    )
    with database.read() as session:
        return dict(session.exec(query).all())
