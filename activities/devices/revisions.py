"""Revisions of device configurations in rows, and what they use."""

from typing import Any

from sqlalchemy import ColumnElement, and_, delete
from sqlmodel import Session, col, func, or_, select

from activities.db.tables import (
    DeploymentTarget,
    Device,
    DeviceConfiguration,
    DeviceDeployment,
    DeviceRevision,
    DeviceRevisionUse,
)
from activities.devices.specs import variables_name, variables_of
from activities.jobs.submissions import sealed_variables
from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.lifecycles import DEPLOYMENT

KEPT_REVISIONS = 100
KEPT_BYTES = 16 << 20
"""How many of the newest revisions of a configuration are kept, and how many bytes of variables
they may have together; older ones stay while they are in use."""


def add_revision(
    session: Session, configuration: DeviceConfiguration, document: DeviceDocument, by: str
) -> DeviceRevision:
    """Write the next revision of a locked configuration, with what it uses.

    Variables that are the same as before are not written again, and old revisions that nothing uses
    are removed, so that many small changes do not fill the database.
    """
    number = configuration.latest_revision + 1
    same = _same_variables(session, configuration, document)
    sealed = None
    stored = document.model_dump(mode="json")
    stored["environment"]["variables"] = dict.fromkeys(document.environment.variables, "")
    if same is None:
        submission = document.submission(configuration.name)
        sealed = sealed_variables(variables_name(configuration.id, number), submission)
    row = DeviceRevision(
        configuration_id=configuration.id,
        revision=number,
        document=stored,
        sealed_variables=sealed,
        variables_revision=same,
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
    remove_old_revisions(session, configuration, KEPT_REVISIONS)
    return row


def _same_variables(
    session: Session, configuration: DeviceConfiguration, document: DeviceDocument
) -> int | None:
    """The revision that has the variables of the document; None: they are new, or there are none.

    Only the latest revision is compared.
    """
    variables = document.environment.variables
    latest = session.get(DeviceRevision, (configuration.id, configuration.latest_revision))
    if latest is None or not variables or variables_of(session, latest) != variables:
        return None
    return latest.variables_revision or latest.revision


def remove_old_revisions(session: Session, configuration: DeviceConfiguration, newest: int) -> None:
    """Remove the revisions of a locked configuration that nothing uses but for so many newest ones.

    In use is what a device has, is to have, or may return to, and what has the variables of a
    revision that stays.
    """
    table, use = DeviceRevision, DeviceRevisionUse
    length = func.coalesce(func.length(table.sealed_variables), 0)
    query = (
        select(table.revision, table.variables_revision, length)
        .where(table.configuration_id == configuration.id)
        .order_by(col(table.revision).desc())
    )
    rows = session.exec(query).all()
    kept, stored_bytes = 0, 0
    for _, _, size_bytes in rows[:newest]:
        stored_bytes += size_bytes
        if kept and stored_bytes > KEPT_BYTES:
            break
        kept += 1
    if kept == len(rows):
        return
    needed = {row[0] for row in rows[:kept]} | _in_use(session, configuration)
    needed |= {holder for number, holder, _ in rows if number in needed and holder is not None}
    unused = [number for number, _, _ in rows if number not in needed]
    for each in (use, table):
        is_unused = col(each.revision).in_(unused)
        session.execute(
            delete(each).where(col(each.configuration_id) == configuration.id, is_unused)
        )


def _in_use(session: Session, configuration: DeviceConfiguration) -> set[int]:
    """The revisions that devices have or are to have, and those of deployments under way."""
    device, target, deployment = Device, DeploymentTarget, DeviceDeployment
    of_region = (device.region_id == configuration.region_id,)
    is_there = col(device.status) != DeviceStatus.ARCHIVED
    is_open = col(deployment.status).not_in(sorted(DEPLOYMENT.final_statuses))
    queries = (
        select(device.running_revision).where(
            *of_region, is_there, device.running_configuration_id == configuration.id
        ),
        select(device.assignment_revision).where(
            *of_region, is_there, device.assignment_configuration_id == configuration.id
        ),
        select(deployment.revision).where(deployment.configuration_id == configuration.id, is_open),
        select(target.earlier_revision)
        .join(deployment, col(deployment.id) == target.deployment_id)
        .where(
            deployment.region_id == configuration.region_id,
            target.earlier_configuration_id == configuration.id,
            is_open,
        ),
    )
    found = (session.exec(query.distinct()).all() for query in queries)
    return {number for numbers in found for number in numbers if number is not None}


def _used(document: DeviceDocument) -> set[str]:
    """The ids of the model, the checkpoints and the datastore that a document names."""
    model = {document.model.id} if document.model else set()
    output = {document.output.datastore_id} if document.output else set()
    return {*model, *document.checkpoints, *(each for each in output if each)}


def opened(session: Session, revision: DeviceRevision) -> dict[str, Any]:
    """The document of a revision with the values of its variables, as JSON."""
    variables = variables_of(session, revision)
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
