"""Offers: a planning round for a job that is not submitted."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from activities.db import tables
from activities.placement.cloud_market import market
from activities.placement.inventory import inventory
from activities.settings import settings
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import field_error, invalid
from api.schemas import offers as schemas
from api.schemas.jobs import PlacementRefusal
from api.schemas.offers import OffersQuery
from api.services.job_providers import (
    provider_names,
    with_provider_ids,
    wrong_gpu_types,
    wrong_providers,
)
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
    document = _document(wanted)
    submission = _submission(document, known)
    project = None
    if wanted.project_id is not None:
        project = project_for(session, caller, wanted.project_id)
    owner_id = caller.account_id if project is None else project.account_id
    if wrong := [
        *wrong_providers(session, document, owner_id, caller.account_id),
        *wrong_gpu_types(session, document, owner_id, known),
    ]:
        raise invalid(*(field_error(_parameter(m.field), m.rule, m.value) for m in wrong))
    named = with_provider_ids(session, submission, owner_id)
    return _Ranking(session, now, known).of(named, owner_id, project)


def preview(session: Session, caller: Caller, document: Any, now: datetime) -> schemas.JobPreview:
    """The offers for a job as `POST /v1/jobs` would take it; nothing is written.

    The uploads that the document names are not looked for, because they may not be sent yet.
    Raises: Problem, as `submit_job`.
    """
    context = ChangeContext(session, caller, now, "preview_job")
    asked = read_document(document)
    submission, project = accepted(context, replace(asked, document=_without_uploads(document)))
    ranking = _Ranking(session, now, asked.known_gpu_types)
    return schemas.JobPreview(
        name=submission.name,
        project_id=project.id,
        worker_count=len(submission.workers),
        **ranking.of(submission, project.account_id, project).model_dump(),
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


@dataclass(frozen=True, slots=True)
class _Ranking:
    """How jobs that are not submitted would be placed now.

    known: the GPU types of the platform's nodes.
    """

    session: Session
    now: datetime
    known: list[str]

    def of(
        self, submission: JobSubmission, account_id: str, project: tables.Project | None
    ) -> schemas.OfferList:
        sold = market(self.session, self.now)
        demand = demand_of(submission, account_id, {*self.known, *sold.gpu_types})
        if project is not None:
            only_owned = demand.only_owned or project.use_only_owned_resources
            demand = replace(demand, project_id=project.id, only_owned=only_owned)
        found = rank(demand, inventory(self.session, self.now, sold.preferred), sold)
        names = provider_names(self.session, (item.provider_id for item in found.items))
        return schemas.OfferList(
            placeable=found.placeable,
            offers=[
                self._shown(position, item, names.get(item.provider_id))
                for position, item in enumerate(found.items, 1)
            ],
            refusals=[PlacementRefusal(**refusal.model_dump()) for refusal in found.refusals],
        )

    def _shown(self, position: int, item: RankedOffer, provider_name: str | None) -> schemas.Offer:
        shown = item.model_dump() | {
            "provider_id": item.provider_id or None,
            "price_is_estimate": item.price_is_estimate or self._is_old(item.read_at),
        }
        return schemas.Offer(
            rank=position,
            node_id=item.offer_id if item.machine_type is None else None,
            provider_name=provider_name,
            **shown,
        )

    def _is_old(self, read_at: datetime | None) -> bool:
        """Whether a marketplace's price was read too long ago to count as its price of now."""
        limit = timedelta(seconds=settings().rental_price_valid_s)
        return read_at is not None and self.now - read_at > limit


def _document(wanted: OffersQuery) -> dict[str, Any]:
    """The document of a job that asks for this."""
    resources: dict[str, Any] = {"gpus": wanted.gpus, "disk_size_gb": wanted.disk_size_gb}
    is_cpu = wanted.gpus.strip().lower() == "cpu"
    resources["cpu_count"] = wanted.cpu_count or (1 if is_cpu else None)
    resources["memory_gib"] = wanted.memory_gib
    if wanted.max_price is not None:
        resources["max_price_microcredits_per_gpu_hour"] = wanted.max_price
    return {
        "name": "offer",
        "type": "training",
        "resources": resources,
        "placement": {
            "region_id": wanted.region_id,
            "providers": wanted.providers,
            "only_owned": wanted.only_owned,
            "spot": wanted.spot,
        },
        "workers": [{"command": "true"}] * wanted.workers,
    }


def _submission(document: dict[str, Any], known: list[str]) -> JobSubmission:
    reading = read_submission(document, known)
    if reading.submission is None:
        raise invalid(
            *(field_error(_parameter(m.field), m.rule, m.value) for m in reading.mistakes)
        )
    return reading.submission


def _parameter(field: str) -> str:
    return _FIELDS.get(field, field.removeprefix("resources.").removeprefix("placement."))
