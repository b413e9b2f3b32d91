"""Offers: a planning round for a job that is not submitted."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlmodel import Session

from activities.placement.cloud_market import market
from activities.placement.inventory import inventory
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import field_error, invalid
from api.schemas import offers as schemas
from api.schemas.jobs import PlacementRefusal
from api.schemas.offers import OffersQuery
from api.services.job_submissions import accepted, known_gpu_types, read_document
from api.services.ownership import project_for
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import RankedOffer
from workflows.rules.jobs.resources import demand_of
from workflows.rules.jobs.submission import read_submission
from workflows.rules.placement.ranking import rank

_FIELDS = {
    "resources.max_price_microcredits_per_gpu_hour": "max_price",
    "placement.region_id": "region_id",
}


def offers_for(
    session: Session, caller: Caller, wanted: OffersQuery, now: datetime
) -> schemas.OfferList:
    """The offers for such a job now, best first, and the refusals of the others.

    They are those of the project's owner, who owns the job, whoever submits it.
    Raises: Problem `not-found`, `forbidden`, when the caller may not create jobs in the project.
    """
    known = known_gpu_types(session)
    submission = _submission(wanted, known)
    demand = demand_of(submission, caller.account_id, known)
    if wanted.project_id is not None:
        project = project_for(session, caller, wanted.project_id)
        only_owned = demand.only_owned or project.use_only_owned_resources
        demand = replace(
            demand,
            account_id=project.account_id,
            project_id=project.id,
            only_owned=only_owned,
        )
    sold = market(session, now)
    found = rank(demand, inventory(session, now, sold.preferred), sold)
    return schemas.OfferList(
        placeable=found.placeable,
        offers=[_shown(position, item) for position, item in enumerate(found.items, 1)],
        refusals=[PlacementRefusal(**refusal.model_dump()) for refusal in found.refusals],
    )


def preview(session: Session, caller: Caller, document: Any, now: datetime) -> schemas.JobPreview:
    """The offers for a job as `POST /v1/jobs` would take it; nothing is written.

    The uploads that the document names are not looked for, because they may not be sent yet.
    Raises: Problem, as `submit_job`.
    """
    context = ChangeContext(session, caller, now, "preview_job")
    asked = read_document(document)
    submission, project = accepted(context, replace(asked, document=_without_uploads(document)))
    known = asked.known_gpu_types
    demand = demand_of(submission, project.account_id, known)
    only_owned = demand.only_owned or project.use_only_owned_resources
    sold = market(session, now)
    inventories = inventory(session, now, sold.preferred)
    demand = replace(demand, project_id=project.id, only_owned=only_owned)
    found = rank(demand, inventories, sold)
    return schemas.JobPreview(
        name=submission.name,
        project_id=project.id,
        worker_count=demand.worker_count,
        placeable=found.placeable,
        offers=[_shown(position, item) for position, item in enumerate(found.items, 1)],
        refusals=[PlacementRefusal(**refusal.model_dump()) for refusal in found.refusals],
    )


def _without_uploads(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    rest = {name: value for name, value in document.items() if name != "code"}
    data = rest.get("data")
    if isinstance(data, dict) and isinstance(data.get("input"), dict):
        kept = {name: value for name, value in data["input"].items() if name != "upload_id"}
        rest["data"] = {**data, "input": kept}
    return rest


def _shown(position: int, item: RankedOffer) -> schemas.Offer:
    node_id = item.offer_id if item.machine_type is None else None
    return schemas.Offer(rank=position, node_id=node_id, **item.model_dump())


def _submission(wanted: OffersQuery, known: list[str]) -> JobSubmission:
    resources: dict[str, Any] = {"gpus": wanted.gpus, "disk_size_gb": wanted.disk_size_gb}
    is_cpu = wanted.gpus.strip().lower() == "cpu"
    resources["cpu_count"] = wanted.cpu_count or (1 if is_cpu else None)
    resources["memory_gib"] = wanted.memory_gib
    if wanted.max_price is not None:
        resources["max_price_microcredits_per_gpu_hour"] = wanted.max_price
    document = {
        "name": "offer",
        "type": "training",
        "resources": resources,
        "placement": {
            "region_id": wanted.region_id,
            "only_owned": wanted.only_owned,
            "spot": wanted.spot,
        },
        "workers": [{"command": "true"}] * wanted.workers,
    }
    reading = read_submission(document, known)
    if reading.submission is None:
        raise invalid(
            *(field_error(_parameter(m.field), m.rule, m.value) for m in reading.mistakes)
        )
    return reading.submission


def _parameter(field: str) -> str:
    return _FIELDS.get(field, field.removeprefix("resources."))
