"""The quotas of an account in one cloud region, read from the cloud at each call."""

from activities.providers.registry import kind_of
from workflows.contracts.quotas import Quota, RunnableJobs
from workflows.rules.catalogue.quotas import runnable_jobs


def live_quotas(
    kind: str, provider_id: str, region: str, gpu_count: int
) -> tuple[tuple[Quota, ...], tuple[RunnableJobs, ...]]:
    """Every quota of a region, and how many jobs with `gpu_count` GPUs the quotas allow.

    Blocking. Raises: Unavailable, RequestRefused.
    """
    found = kind_of(kind)
    catalogue = found.required("catalogue", found.catalogue)()
    quotas = found.required("quotas", found.quotas)(provider_id, region)
    return quotas, runnable_jobs(catalogue, region, quotas, gpu_count)
