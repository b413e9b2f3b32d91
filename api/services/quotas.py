"""Quotas: read now from the cloud of a provider, with the jobs that may run within them."""

from datetime import datetime

from activities.db import tables
from activities.db.session import database
from activities.providers.base import ProviderError, Unavailable
from activities.providers.prices import priced_catalogue
from activities.providers.quotas import live_quotas
from activities.providers.registry import kind_of
from api.authorization import Caller
from api.problems import Problem, field_error, invalid
from api.schemas import quotas as schemas
from api.services.lifecycles import GONE
from api.services.ownership import own
from workflows.contracts.quotas import RunnableJobs
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.catalogue.quotas import refusal


def quotas_for(caller: Caller, wanted: schemas.QuotasQuery, now: datetime) -> schemas.QuotaList:
    """The quotas of a cloud region, read now; no database session is open during the call.

    Raises: Problem `invalid-request`, when the provider has no quotas or no such region;
    `conflict`, when the provider is being removed; `unavailable`, when the cloud does not answer;
    `provider-not-ready`, when the cloud refuses.
    """
    with database().read() as session:
        row = own(session, tables.Provider, wanted.provider_id, caller)
        kind, status = row.kind, row.status
        project_id = (row.cloud or {}).get("project_id", "")
    if kind_of(kind).quotas is None or kind_of(kind).catalogue is None:
        raise invalid(
            field_error("provider_id", f"is of a cloud: {kind} has no quotas", wanted.provider_id)
        )
    if status in GONE:
        raise Problem("conflict", f"provider {wanted.provider_id}: is {status}")
    catalogue = priced_catalogue(kind)
    if catalogue.region(wanted.cloud_region) is None:
        known = ", ".join(region.name for region in catalogue.regions)
        raise invalid(field_error("cloud_region", f"is one of {known}", wanted.cloud_region))
    try:
        quotas, runnable = live_quotas(
            kind, wanted.provider_id, wanted.cloud_region, wanted.gpu_count
        )
    except Unavailable as error:
        raise Problem("unavailable", str(error), (), {"Retry-After": "5"}) from error
    except ProviderError as error:
        raise Problem("provider-not-ready", f"provider {wanted.provider_id}: {error}") from error
    return schemas.QuotaList(
        provider_id=wanted.provider_id,
        cloud_region=wanted.cloud_region,
        read_at=now,
        raise_at=traits_of(kind).quotas_url.format(project_id=project_id),
        runnable=[_shown(each, catalogue, wanted.cloud_region) for each in runnable],
        refusal=refusal(wanted.cloud_region, runnable),
        quotas=[schemas.Quota(**quota.model_dump(), free=quota.free) for quota in quotas],
    )


def _shown(found: RunnableJobs, catalogue: CloudCatalogue, region: str) -> schemas.RunnableJobs:
    machine = catalogue.machine_for(found.gpu_type, found.gpu_count, spot=found.spot)
    price = catalogue.price(machine, region) if machine else None
    hourly = None
    if price is not None:
        spot, on_demand = price.spot_microcredits_per_hour, price.on_demand_microcredits_per_hour
        hourly = spot if found.spot else on_demand
    return schemas.RunnableJobs(
        **found.model_dump(exclude={"shares"}), microcredits_per_hour=hourly
    )
