"""What the document of a federated job may ask, beside what any job may."""

from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.job_submission import FieldError, JobSubmission
from workflows.contracts.statuses import JobType
from workflows.rules.jobs.data_places import SOURCES
from workflows.rules.jobs.field_errors import Mistakes, field_error

_OUTPUT_RULE = (
    "goes to a datastore of the project's owner alone: type regional with a datastore_id, or null"
)


def mistakes_of_federated(job: JobSubmission) -> tuple[FieldError, ...]:
    """The field errors of a job that is none of those that can be federated."""
    return (*_model_and_type(job), *_data(job), *_reach(job))


def _model_and_type(job: JobSubmission) -> Mistakes:
    if job.type is JobType.NOTEBOOK:
        rule = "is training, inference or endpoint: people would see the model in a notebook"
        yield field_error("type", rule, job.type.value)
    if job.data.model is None:
        rule = "is the model of another project that a federated job is about"
        yield field_error("data.model", rule, None)
    if job.project_id is None:
        rule = "is the project of the consumer, prj-…: a federated job runs in no project of yours"
        yield field_error("project_id", rule, None)
    if job.array is not None:
        rule = "is for jobs of one party; create a federated job for each"
        yield field_error("array", rule, len(job.array))


def _data(job: JobSubmission) -> Mistakes:
    output, given = job.data.output, job.data.input
    if output is not None and output.type != "regional":
        yield field_error("data.output.type", _OUTPUT_RULE, output.type)
    if given is not None and given.type in SOURCES:
        rule = "is of the project, of one of its owner's datastores, or an upload"
        yield field_error("data.input.type", rule, None)
    for index, volume in enumerate(job.data.volumes):
        if volume.access is VolumeAccess.WRITE:
            rule = "is read: the output of a federated job goes to a datastore alone"
            yield field_error(f"data.volumes.{index}.access", rule, volume.access.value)


def _reach(job: JobSubmission) -> Mistakes:
    if len(job.workers) > 1:
        rule = "is one: the machine of a federated job reaches no other one"
        yield field_error("workers", rule, len(job.workers))
    if job.reservation_id is not None:
        rule = "is null: the machine of a federated job is reached from no network"
        yield field_error("reservation_id", rule, job.reservation_id)
    if job.placement.only_owned is False:
        rule = "is null or true: a federated job runs on machines of the project's owner alone"
        yield field_error("placement.only_owned", rule, False)
