"""What a cloud allows an account in one of its regions now: asked of the cloud at each call."""

from activities.providers.gcp.catalogue import gcp_catalogue, gcp_storage
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.quotas import read_quotas
from activities.providers.gcp.session import google_session
from activities.providers.prices import priced_catalogue
from workflows.contracts.quotas import Quota, RunnableJobs
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.permanent_machines import StorageClasses
from workflows.rules.catalogue.quotas import runnable_jobs

STORAGE = {ProviderKind.GCP: gcp_storage}


def catalogue_of(kind: str) -> CloudCatalogue | None:
    """What is known of a cloud before asking it, with the prices that it has told at last.

    None for kinds that have no regions of a cloud.
    """
    return priced_catalogue(kind)


def storage_of(kind: str) -> StorageClasses | None:
    """The classes of storage nodes in a cloud; None for kinds that have no regions of a cloud."""
    found = STORAGE.get(ProviderKind(kind))
    return found() if found else None


def live_quotas(
    provider_id: str, region: str, gpu_count: int
) -> tuple[tuple[Quota, ...], tuple[RunnableJobs, ...]]:
    """Every quota of a region, and how many jobs with so many GPUs they leave room for.

    Blocking. Raises: Unavailable, RequestRefused.
    """
    with translated_errors():
        quotas = read_quotas(google_session(provider_id), region)
    return quotas, runnable_jobs(gcp_catalogue(), region, quotas, gpu_count)
