"""The quotas of a cloud region, before our region exists there and afterwards."""

from datetime import UTC, datetime

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller
from api.problems import Problem
from api.schemas.quotas import QuotaList, QuotasQuery
from api.schemas.regions import RegionCreation, RegionQuota, RegionQuotaPage
from api.services.ownership import own
from api.services.quotas import quotas_for
from workflows.rules.catalogue.providers import traits_of


def refusal_of(caller: Caller, asked: RegionCreation) -> Problem | None:
    """The problem of a new region in which no job could run; None where nothing is against it.

    A failure to read the quotas is a problem too. The problem is found before the transaction
    that writes the region and raised within it, so that a repeated request gets the stored answer.
    """
    if asked.cloud_region is None:
        return None
    wanted = QuotasQuery(provider_id=asked.provider_id, cloud_region=asked.cloud_region)
    try:
        found = quotas_for(caller, wanted, datetime.now(UTC))
    except Problem as problem:
        return problem
    if found.refusal is None:
        return None
    return Problem("quota-exhausted", f"{found.refusal}; raise them at {found.raise_at}")


def quotas_of_region(caller: Caller, region_id: str) -> RegionQuotaPage:
    """The quotas of a region, read from its cloud now; none in a region of machines you own."""
    with database().read() as session:
        row = own(session, tables.Region, region_id, caller)
        provider_id, kind, cloud_region = row.provider_id, row.provider_kind, row.cloud_region
    if not traits_of(kind).is_cloud:
        return RegionQuotaPage(items=[])
    wanted = QuotasQuery(provider_id=provider_id, cloud_region=cloud_region or "")
    return RegionQuotaPage(items=_shown(quotas_for(caller, wanted, datetime.now(UTC))))


def _shown(found: QuotaList) -> list[RegionQuota]:
    quotas = {quota.metric: quota for quota in found.quotas}
    shown = []
    for each in found.runnable:
        deciding = quotas.get(each.limiting or "")
        shown.append(
            RegionQuota(
                gpu_type=each.gpu_type,
                spot=each.spot,
                limiting=each.limiting,
                limit=deciding.limit if deciding else None,
                used=deciding.used if deciding else None,
                runnable_jobs=each.jobs,
                advice=each.advice,
            )
        )
    return shown
