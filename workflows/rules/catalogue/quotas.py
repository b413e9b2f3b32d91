"""How many jobs a cloud's quotas leave room for, and what to raise for more.

Jobs with n GPUs of a type = the least, over all quotas that count, of what is free divided by n
times the share of one GPU: itself, its CPUs, a local SSD where the machine type brings
none, and one of all GPUs of the project. A quota that could not be read is unknown, not zero.
"""

from collections.abc import Iterable, Mapping

from workflows.contracts.quotas import Quota, RunnableJobs, Share
from workflows.rules.catalogue.clouds import CloudCatalogue, CloudGpu

ALL_REGIONS = "all regions"
FAMILY = "GPUS-PER-GPU-FAMILY"


def family_metric(gpu_family: str) -> str:
    """Our name of the quota of a GPU family, such as `GPUS-PER-GPU-FAMILY/NVIDIA_H100`."""
    return f"{FAMILY}/{gpu_family}"


def runnable_jobs(
    catalogue: CloudCatalogue, region: str, quotas: Iterable[Quota], gpu_count: int = 1
) -> tuple[RunnableJobs, ...]:
    """The runnable jobs of every GPU type that the region sells, on demand and as spot.

    quotas: of the region and of the project; a metric that is missing counts as unknown.
    """
    by_metric = {quota.metric: quota for quota in quotas}
    types = [catalogue.gpu(name) for name in catalogue.gpu_types_in(region)]
    return tuple(
        _runnable(gpu, _shares(catalogue, gpu, region, by_metric, spot), gpu_count, spot=spot)
        for gpu in types
        if gpu is not None
        for spot in (False, True)
    )


def refusal(region: str, found: Iterable[RunnableJobs]) -> str | None:
    """Why a region has no use; None: its quotas allow a job, or are unknown."""
    known = tuple(found)
    if any(each.jobs is None or each.jobs > 0 for each in known):
        return None
    told = "; ".join(f"{each.gpu_type}: {each.advice}" for each in known if not each.spot)
    return f"{region}: its quotas leave room for no job with a GPU: {told or 'it sells none'}"


def _shares(
    catalogue: CloudCatalogue, gpu: CloudGpu, region: str, quotas: Mapping[str, Quota], spot: bool
) -> list[tuple[Quota, int]]:
    """The quotas that one GPU counts against, and how much of each it takes."""

    def quota(metric: str, place: str = region) -> Quota:
        return quotas.get(metric) or Quota(metric=metric, place=place)

    def granted(metric: str | None, otherwise: str) -> Quota:
        """The spot quota if any was granted; else spot counts against the on-demand quota."""
        found = quotas.get(metric) if spot and metric else None
        return found if found is not None and found.limit != 0 else quota(otherwise)

    metrics = catalogue.quota_metrics
    own = gpu.quota or family_metric(gpu.gpu_family or "")
    shares = [
        (granted(gpu.spot_quota, own), 1),
        (quota(metrics.gpus_all_regions, ALL_REGIONS), 1),
        (granted(metrics.spot_cpus, gpu.cpu_quota), gpu.cpus_per_gpu),
    ]
    if not gpu.brings_ssd:
        ssds = granted(metrics.spot_local_ssd, metrics.local_ssd)
        shares.append((ssds, catalogue.local_ssd.size_gb))
    return shares


def _runnable(
    gpu: CloudGpu, of_one: list[tuple[Quota, int]], gpu_count: int, *, spot: bool
) -> RunnableJobs:
    shares = tuple(_share(quota, share * gpu_count) for quota, share in of_one)
    known = [share for share in shares if share.jobs is not None]
    unknown = [share for share in shares if share.jobs is None]
    least = min(known, key=lambda share: share.jobs or 0, default=None)
    decides = least is not None and (least.jobs == 0 or not unknown)
    deciding = least if least is not None and decides else unknown[0]
    return RunnableJobs(
        gpu_type=gpu.gpu_type,
        gpu_count=gpu_count,
        spot=spot,
        jobs=deciding.jobs,
        limiting=deciding.quota.metric,
        advice=_advice(deciding, shares),
        shares=shares,
    )


def _share(quota: Quota, per_job: int) -> Share:
    free = quota.free
    return Share(quota=quota, per_job=per_job, jobs=None if free is None else free // per_job)


def _advice(deciding: Share, shares: tuple[Share, ...]) -> str:
    """The quotas to raise for one more job, in words."""
    if deciding.jobs is None:
        quota = deciding.quota
        return f"{quota.metric} in {quota.place} could not be read: whether a job fits is unknown"
    short = [share for share in shares if share.jobs is not None and share.jobs <= deciding.jobs]
    return "raise " + ", ".join(_raised(share, deciding.jobs + 1) for share in short)


def _raised(share: Share, jobs: int) -> str:
    quota = share.quota
    wanted = (quota.used or 0) + share.per_job * jobs
    return (
        f"{quota.metric} in {quota.place} to {wanted} "
        f"(now {quota.limit}, of which {quota.used} are used)"
    )
