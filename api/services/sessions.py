"""The sessions of jobs: which run is reached, by whom, and what the audit log has of it."""

from dataclasses import dataclass

from sqlmodel import Session

from activities.db import tables
from activities.db.session import database
from activities.nodes.addresses import address_of
from activities.settings import settings
from api.audit_notes import Reads
from api.authorization import Caller
from api.problems import Problem, missing
from api.services.ownership import visible_job
from api.sessions.switchboard import RunPlace
from workflows.contracts.jobs import run_id
from workflows.contracts.sessions import SessionKind, SessionRequest
from workflows.contracts.statuses import JobStatus, WorkerStatus

ACTION = "open_job_session"


@dataclass(frozen=True, slots=True)
class Target:
    """What a person wants to reach: a worker of a job."""

    job_id: str
    worker: int = 0


def place_of(caller: Caller, target: Target) -> RunPlace:
    """The running command of a worker, for who may change the job. Blocking.

    Raises: Problem `not-found`, `forbidden`; `conflict`, when it does not run.
    """
    with database().read() as session:
        return _place(session, caller, target)


def _place(session: Session, caller: Caller, target: Target) -> RunPlace:
    job = visible_job(session, caller, target.job_id, level="all")
    _must_not_be_creator(caller, job)
    if target.worker >= len(job.spec["workers"]):
        raise missing("worker", f"{target.worker} of job {job.name}")
    worker = next((each for each in job.workers if each["index"] == target.worker), None)
    assignment = (worker or {}).get("assignment") or {}
    node_id = (assignment.get("node") or {}).get("node_id")
    node = session.get(tables.Node, node_id) if node_id is not None else None
    region = session.get(tables.Region, node.region_id) if node is not None else None
    runs = job.status == JobStatus.RUNNING and (worker or {}).get("status") == WorkerStatus.RUNNING
    if not runs or node is None or region is None or node.host is None:
        raise Problem("conflict", f"job {job.id}: does not run now, its status is {job.status}")
    return RunPlace(
        job_id=job.id,
        account_id=job.account_id,
        run_id=run_id(job.id, target.worker, job.attempt),
        node=address_of(node, region),
        port=job.spec.get("port"),
        is_federated=job.federated_id is not None,
    )


def _must_not_be_creator(caller: Caller, job: tables.Job) -> None:
    """Refuse the creator of a federated job, whose own code would serve it the consumer's data.

    Raises: Problem `forbidden`.
    """
    if job.federated_id is None or caller.account_id == job.account_id:
        return
    if caller.account_id == job.creator_account_id:
        words = f"job {job.id}: what a federated job serves is for its consumer alone"
        raise Problem("forbidden", f"{words}, and not for the owner of its model")


def check_kind(place: RunPlace, request: SessionRequest) -> None:
    """Refuse what would show the model of a federated job: all but what it serves at its port.

    Raises: Problem `forbidden`.
    """
    is_served = request.kind is SessionKind.PORT and request.port == place.port
    if place.is_federated and not is_served:
        words = f"job {place.job_id}: nobody has a session of a federated job, which has the model"
        raise Problem("forbidden", f"{words} of another account, but at the port that it serves")


def note(reads: Reads, caller: Caller, place: RunPlace, kind: SessionKind) -> None:
    """Write who reaches which job, and how, into the audit log; never what is said. Blocking.

    Connections to a port are many: the first of each minute counts.
    """
    about = (place.account_id, place.job_id)
    reads.note_session(caller, f"{ACTION}_{kind}", about, is_rare=kind is not SessionKind.PORT)


def port_of(place: RunPlace) -> int:
    """The port at which the job serves. Raises: Problem `conflict`, when it has none."""
    if place.port is None:
        raise Problem("conflict", f"job {place.job_id}: has no port, so it serves nothing")
    return place.port


def origin_of(place: RunPlace) -> str:
    """The origin of the job's pages. Raises: Problem `unavailable`, when none are served."""
    origin = settings().endpoint_origin(place.job_id)
    if origin is None:
        raise Problem("unavailable", "BASELOAD_ENDPOINTS: this API serves no pages of jobs")
    return origin
