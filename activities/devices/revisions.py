"""Revisions of device configurations in rows, and what they use."""

from typing import Any

from sqlalchemy import ColumnElement, and_
from sqlmodel import Session, col, or_, select

from activities.db.tables import (
    DeploymentTarget,
    Device,
    DeviceConfiguration,
    DeviceDeployment,
    DeviceRevision,
    DeviceRevisionUse,
)
from activities.devices.specs import variables_name
from activities.jobs.submissions import open_variables, sealed_variables
from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.lifecycles import DEPLOYMENT


def add_revision(
    session: Session, configuration: DeviceConfiguration, document: DeviceDocument, by: str
) -> DeviceRevision:
    """Write the next revision of a locked configuration, with what it uses."""
    number = configuration.latest_revision + 1
    stored = document.model_dump(mode="json")
    stored["environment"]["variables"] = dict.fromkeys(document.environment.variables, "")
    submission = document.submission(configuration.name)
    row = DeviceRevision(
        configuration_id=configuration.id,
        revision=number,
        document=stored,
        sealed_variables=sealed_variables(variables_name(configuration.id, number), submission),
        created_at=configuration.updated_at,
        created_by=by,
    )
    session.add(row)
    for resource_id in _used(document):
        use = DeviceRevisionUse(
            configuration_id=configuration.id, revision=number, resource_id=resource_id
        )
        session.add(use)
    configuration.latest_revision = number
    session.add(configuration)
    session.flush()
    return row


def _used(document: DeviceDocument) -> set[str]:
    """The ids of the model, the checkpoints and the datastore that a document names."""
    model = {document.model.id} if document.model else set()
    output = {document.output.datastore_id} if document.output else set()
    return {*model, *document.checkpoints, *(each for each in output if each)}


def opened(revision: DeviceRevision) -> dict[str, Any]:
    """The document of a revision with the values of its variables, as JSON."""
    name = variables_name(revision.configuration_id, revision.revision)
    variables = open_variables(name, revision.sealed_variables)
    environment = revision.document.get("environment", {}) | {"variables": variables}
    return revision.document | {"environment": environment}


def configurations_using(session: Session, resource_id: str) -> list[DeviceConfiguration]:
    """The configurations that use a model, a checkpoint or a datastore, by name.

    Those count whose latest revision uses it, and those with a revision that a device has, is to
    have, or returns to where a deployment that is under way is rolled back.
    """
    use, configuration = DeviceRevisionUse, DeviceConfiguration
    query = (
        select(configuration)
        .join(use, col(use.configuration_id) == configuration.id)
        .where(use.resource_id == resource_id, or_(_is_latest(), _is_on_devices(), _comes_back()))
        .distinct()
        .order_by(col(configuration.name))
    )
    return list(session.exec(query).all())


def _is_latest() -> ColumnElement[bool]:
    use, configuration = DeviceRevisionUse, DeviceConfiguration
    return and_(
        col(configuration.removed_at).is_(None),
        col(use.revision) == configuration.latest_revision,
    )


def _is_on_devices() -> ColumnElement[bool]:
    use = DeviceRevisionUse
    runs = and_(
        col(Device.running_configuration_id) == use.configuration_id,
        col(Device.running_revision) == use.revision,
    )
    asked = and_(
        col(Device.assignment_configuration_id) == use.configuration_id,
        col(Device.assignment_revision) == use.revision,
    )
    # Where a device runs a configuration, it is set to it, or was: both are of its region.
    of_region = col(Device.region_id) == DeviceConfiguration.region_id
    is_there = col(Device.status) != DeviceStatus.ARCHIVED
    return select(Device.id).where(of_region, is_there, or_(runs, asked)).exists()


def _comes_back() -> ColumnElement[bool]:
    use, target, deployment = DeviceRevisionUse, DeploymentTarget, DeviceDeployment
    ended = sorted(DEPLOYMENT.final_statuses)
    earlier = and_(
        col(target.earlier_configuration_id) == use.configuration_id,
        col(target.earlier_revision) == use.revision,
    )
    own = and_(
        col(deployment.configuration_id) == use.configuration_id,
        col(deployment.revision) == use.revision,
    )
    return (
        select(target.device_id)
        .join(deployment, col(deployment.id) == target.deployment_id)
        .where(col(deployment.status).not_in(ended), or_(earlier, own))
        .exists()
    )
