"""Device configurations: their responses and their changes, each of which is a new revision."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlmodel import Session, col, func, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.devices.revisions import add_revision, opened, remove_old_revisions
from activities.devices.specs import document_of
from activities.settings import settings
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import device_configurations as schemas
from api.services.account_limits import check_limit
from api.services.devices import must_have_central_storage
from api.services.job_references import personal_project, wrong_references
from api.services.lifecycles import GONE, names_of
from api.services.ownership import hold_project, own, own_locked, project_for
from api.services.people import People
from api.services.third_party_keys import with_image_key
from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.job_submission import FieldError
from workflows.contracts.lifecycles import DEPLOYMENT
from workflows.rules.counts import some_of
from workflows.rules.devices.configurations import (
    differences,
    document_mistakes,
    merged,
    renamed,
)
from workflows.rules.jobs.formats import secret_reference
from workflows.rules.jobs.shape import rule_of

MOST_REVISIONS = 10_000
MOST_SHOWN = 100
_VARIABLES = "environment.variables."


def configuration_responses(
    session: Session, rows: Sequence[tables.DeviceConfiguration]
) -> list[schemas.DeviceConfiguration]:
    """The configurations, each with how many devices are set to it and have its latest revision."""
    ids = [row.id for row in rows]
    table, device = tables.DeviceConfiguration, tables.Device
    on_devices = (
        select(device.configuration_id, func.count())
        .join(table, col(table.id) == device.configuration_id)
        .where(col(device.configuration_id).in_(ids), col(device.status) != DeviceStatus.ARCHIVED)
        .group_by(col(device.configuration_id))
    )
    latest = (
        col(device.running_configuration_id) == table.id,
        col(device.running_revision) == table.latest_revision,
    )
    counts = dict(session.exec(on_devices).all())
    deployed = dict(session.exec(on_devices.where(*latest)).all())
    return [_response(row, counts.get(row.id, 0), deployed.get(row.id, 0)) for row in rows]


def _response(
    row: tables.DeviceConfiguration, device_count: int, deployed_count: int
) -> schemas.DeviceConfiguration:
    return schemas.DeviceConfiguration(
        **row.model_dump(exclude={"removed_at"}),
        device_count=device_count,
        deployed_count=deployed_count,
    )


def described_configuration(
    session: Session, caller: Caller, row: tables.DeviceConfiguration
) -> schemas.DescribedDeviceConfiguration:
    """A configuration with its latest revision, and its revisions, as a caller may see them."""
    (shown,) = configuration_responses(session, [row])
    table, device = tables.DeviceRevision, tables.Device
    running = dict(
        session.exec(
            select(device.running_revision, func.count())
            .where(
                device.running_configuration_id == row.id,
                device.region_id == row.region_id,
                col(device.status) != DeviceStatus.ARCHIVED,
            )
            .group_by(col(device.running_revision))
        ).all()
    )
    revisions = session.exec(
        select(table)
        .where(table.configuration_id == row.id)
        .order_by(col(table.revision).desc())
        .limit(MOST_SHOWN)
    ).all()
    people = People(session, caller, [each.created_by for each in revisions])
    return schemas.DescribedDeviceConfiguration(
        **shown.model_dump(),
        latest=_revision(revisions[0], people),
        revisions=[
            schemas.DeviceRevisionSummary(
                revision=each.revision,
                created_at=each.created_at,
                created_by=each.created_by,
                created_by_name=people.named(each.created_by) or "",
                running_count=running.get(each.revision, 0),
            )
            for each in revisions
        ],
    )


def revision_response(
    session: Session, caller: Caller, row: tables.DeviceRevision
) -> schemas.DeviceRevision:
    """A revision without the values of its variables, as a caller may see it."""
    return _revision(row, People(session, caller, [row.created_by]))


def _revision(row: tables.DeviceRevision, people: People) -> schemas.DeviceRevision:
    document = document_of(row)
    output, environment = document.output, document.environment
    shown = environment.model_dump() | {"variables": sorted(environment.variables)}
    return schemas.DeviceRevision(
        configuration_id=row.configuration_id,
        revision=row.revision,
        created_at=row.created_at,
        created_by=row.created_by,
        created_by_name=people.named(row.created_by) or "",
        command=document.command,
        model_id=document.model and document.model.id,
        checkpoints=list(document.checkpoints),
        output=None
        if output is None
        else schemas.DeviceOutput(datastore_id=output.datastore_id or "", path=output.path or "/"),
        output_buffer=schemas.DeviceOutputBuffer(**document.output_buffer.model_dump()),
        environment=schemas.DeviceEnvironmentShown(**shown),
        health=schemas.DeviceHealthCheck(**document.health.model_dump()),
        disk_size_gb=document.disk_size_gb,
    )


def own_configuration(
    session: Session, configuration_id: str, caller: Caller
) -> tables.DeviceConfiguration:
    """The account's configuration of this id. Raises: Problem `not-found`, also once removed."""
    row = own(session, tables.DeviceConfiguration, configuration_id, caller)
    if row.removed_at is not None:
        raise _missing(configuration_id)
    return row


def revision_of(session: Session, configuration_id: str, revision: int) -> tables.DeviceRevision:
    """A revision of a configuration. Raises: Problem `not-found`."""
    # What no column takes is no revision either.
    found = session.get(tables.DeviceRevision, (configuration_id, min(revision, 2**31 - 1)))
    if found is None:
        raise missing(f"configuration {configuration_id}: revision", str(revision))
    return found


def create_configuration(
    context: ChangeContext, asked: schemas.DeviceConfigurationCreation
) -> schemas.DescribedDeviceConfiguration:
    """Create a configuration with its first revision.

    Raises: Problem `not-found`, `forbidden`, for region or project; `invalid-request`, with every
    mistake; `conflict`, when no device can be in the region, or it has a configuration of this
    name; `limit-reached`.
    """
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    if region.status in GONE:
        raise Problem("conflict", f"region {region.name}: is {region.status}")
    must_have_central_storage(region)
    project = _project(context, asked.project_id or personal_project(context))
    given = asked.model_dump(include=set(DeviceDocument.model_fields))
    document = _accepted(context, region.id, project, asked.name, DeviceDocument(**given))
    advisory_lock(context.session, f"device-configurations/{region.id}")
    _check_name(context.session, region, asked.name)
    check_limit(context, tables.DeviceConfiguration)
    row = tables.DeviceConfiguration(
        id=new_id("dcf"),
        account_id=context.caller.account_id,
        region_id=region.id,
        project_id=project.id,
        name=asked.name,
        created_at=context.now,
        updated_at=context.now,
    )
    context.session.add(row)
    context.session.flush()
    add_revision(context.session, row, document, context.caller.user_id)
    return described_configuration(context.session, context.caller, row)


def _project(context: ChangeContext, project_id: str) -> tables.Project:
    """The project, which is the account's own, because the account has the devices.

    Raises: Problem `not-found`, `invalid-request`.
    """
    project = project_for(context.session, context.caller, project_id)
    hold_project(context.session, project)
    if project.account_id != context.caller.account_id:
        rule = "is a project of this account: this one is of another"
        raise invalid(field_error("project_id", rule, project_id))
    return project


def change_configuration(
    context: ChangeContext, configuration_id: str, asked: schemas.DeviceConfigurationChange
) -> schemas.DescribedDeviceConfiguration:
    """Make the next revision of a configuration; a change of nothing makes none.

    Raises: Problem `not-found`; `invalid-request`, with every mistake; `limit-reached`.
    """
    row = _own_locked(context, configuration_id)
    latest = revision_of(context.session, row.id, row.latest_revision)
    project = _project(context, row.project_id)
    before = opened(context.session, latest)
    document = _accepted(context, row.region_id, project, row.name, _changed(before, asked))
    if document.model_dump(mode="json") == DeviceDocument(**before).model_dump(mode="json"):
        return described_configuration(context.session, context.caller, row)
    if row.latest_revision >= MOST_REVISIONS:
        detail = f"device configuration {row.name}: has {MOST_REVISIONS} revisions: create another"
        raise Problem("limit-reached", detail)
    row.updated_at = context.now
    add_revision(context.session, row, document, context.caller.user_id)
    return described_configuration(context.session, context.caller, row)


def _changed(before: dict[str, Any], asked: schemas.DeviceConfigurationChange) -> DeviceDocument:
    """Raises: Problem `invalid-request`, when what comes of the change is no document."""
    found = merged(before, asked.model_dump(mode="json", exclude_unset=True))
    try:
        return DeviceDocument.model_validate(found)
    except ValidationError as error:
        mistakes = [
            field_error(".".join(map(str, each["loc"])), rule_of(DeviceDocument, each))
            for each in error.errors()
        ]
        raise invalid(*mistakes) from None


def _accepted(
    context: ChangeContext,
    region_id: str,
    project: tables.Project,
    name: str,
    document: DeviceDocument,
) -> DeviceDocument:
    """The document with whole references and the key of its image, once nothing refuses it.

    Raises: Problem `invalid-request`, with every mistake.
    """
    if document.model is not None and document.model.project_id == project.id:
        model = document.model.model_copy(update={"project_id": None})
        document = document.model_copy(update={"model": model})
    given = document.environment.secrets
    broken = [_problem_of(each) for each in document_mistakes(document, name)]
    submitted = document.submission(name).model_dump(mode="json")
    submitted |= {"project_id": project.id, "placement": {"region_id": region_id}}
    wrong = wrong_references(context, submitted) if not broken else []
    if broken or wrong:
        raise invalid(*broken, *(_problem_of(renamed(_mistake_of(each))) for each in wrong))
    _check_size(document)
    whole = {each: secret_reference(project.id, text) for each, text in given.items()}
    submission = with_image_key(context, document.submission(name), project)
    update = {
        "secrets": whole,
        "image_credentials": submission.environment.image_credentials,
    }
    environment = document.environment.model_copy(update=update)
    return document.model_copy(update={"environment": environment})


def _check_size(document: DeviceDocument) -> None:
    """Check that one request could send the document, which may come of many changes.

    Raises: Problem `invalid-request`.
    """
    most_bytes = settings().request_max_bytes
    size_bytes = len(document.model_dump_json(exclude_defaults=True).encode())
    if size_bytes > most_bytes:
        rule = f"is together with the other fields at most {most_bytes} bytes of JSON"
        raise invalid(field_error("environment.variables", rule, f"{size_bytes} bytes"))


def _problem_of(mistake: FieldError) -> Any:
    return field_error(mistake.field, mistake.rule, mistake.value)


def _mistake_of(problem: Any) -> FieldError:
    return FieldError(field=problem.field, rule=problem.rule, value=problem.value)


def remove_configuration(
    context: ChangeContext, configuration_id: str
) -> schemas.DeviceConfiguration:
    """Remove a configuration that no device has; a second call changes nothing.

    Raises: Problem `not-found`; `conflict`, naming the devices, or the deployments under way.
    """
    row = own_locked(context.session, tables.DeviceConfiguration, configuration_id, context.caller)
    (shown,) = configuration_responses(context.session, [row])
    if row.removed_at is None:
        _check_unused(context.session, row)
        row.removed_at = row.updated_at = context.now
        context.session.add(row)
        remove_old_revisions(context.session, row, newest=0)
    return shown


def _check_unused(session: Session, row: tables.DeviceConfiguration) -> None:
    """Raises: Problem `conflict`."""
    device, deployment = tables.Device, tables.DeviceDeployment
    has = (
        (col(device.configuration_id) == row.id)
        | (col(device.running_configuration_id) == row.id)
        | (col(device.assignment_configuration_id) == row.id)
    )
    of_region = col(device.region_id) == row.region_id
    there = (of_region, has, col(device.status) != DeviceStatus.ARCHIVED)
    if names := names_of(session, device, there):
        detail = (
            f"device configuration {row.name}: is on {some_of(names)}: set these to another one "
            "and deploy it, or stop what they run"
        )
        raise Problem("conflict", detail)
    open_ones = (
        col(deployment.configuration_id) == row.id,
        col(deployment.status).not_in(sorted(DEPLOYMENT.final_statuses)),
    )
    if names := names_of(session, deployment, open_ones):
        detail = f"device configuration {row.name}: is deployed by {some_of(names)}"
        raise Problem("conflict", detail)


def diff(
    session: Session, configuration_id: str, earlier: int, later: int
) -> schemas.DeviceRevisionDiff:
    """What differs between two revisions; of variables only that their values do.

    Raises: Problem `not-found`.
    """
    before, after = (
        opened(session, revision_of(session, configuration_id, each)) for each in (earlier, later)
    )
    return schemas.DeviceRevisionDiff(
        configuration_id=configuration_id,
        earlier=earlier,
        later=later,
        differences=[
            _difference(field, *values) for field, values in differences(before, after).items()
        ],
    )


def _difference(field: str, earlier: Any, later: Any) -> schemas.DeviceRevisionDifference:
    kind = schemas.DifferenceKind.CHANGED
    if earlier is None:
        kind = schemas.DifferenceKind.ADDED
    elif later is None:
        kind = schemas.DifferenceKind.REMOVED
    hidden = field.startswith(_VARIABLES)
    return schemas.DeviceRevisionDifference(
        field=field,
        kind=kind,
        earlier=None if hidden else earlier,
        later=None if hidden else later,
    )


def _own_locked(context: ChangeContext, configuration_id: str) -> tables.DeviceConfiguration:
    row = own_locked(context.session, tables.DeviceConfiguration, configuration_id, context.caller)
    if row.removed_at is not None:
        raise _missing(configuration_id)
    return row


def _missing(configuration_id: str) -> Problem:
    return missing("device configuration", configuration_id)


def _check_name(session: Session, region: tables.Region, name: str) -> None:
    """Raises: Problem `conflict`."""
    table = tables.DeviceConfiguration
    same = select(table).where(
        table.region_id == region.id, table.name == name, col(table.removed_at).is_(None)
    )
    found = session.exec(same).first()
    if found is not None:
        detail = f"device configuration {name}: {found.id} of {region.name} has this name"
        raise Problem("conflict", detail)
