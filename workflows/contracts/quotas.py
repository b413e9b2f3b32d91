"""Quotas of clouds, and the number of jobs that they allow."""

from workflows.contracts.base import Contract


class Quota(Contract):
    """A quota: one limit of a cloud, and how much of it is used; None: the cloud did not say."""

    metric: str
    """The cloud's name of the quota, such as `NVIDIA_T4_GPUS`."""
    place: str
    """The cloud region in which the quota counts, or `all regions`."""
    limit: int | None = None
    used: int | None = None

    @property
    def free(self) -> int | None:
        """The unused rest of the limit, at least 0; None: unknown."""
        if self.limit is None or self.used is None:
            return None
        return max(self.limit - self.used, 0)


class Share(Contract):
    """The share of one quota that a job needs, and the number of jobs that the quota allows."""

    quota: Quota
    per_job: int
    jobs: int | None = None
    """The number of jobs; None: the quota is unknown."""


class RunnableJobs(Contract):
    """The number of jobs with one GPU type and count that quotas allow in a region at once."""

    gpu_type: str
    gpu_count: int
    spot: bool
    jobs: int | None
    """The number of jobs; None: a quota that decides is unknown, which is not the same as 0."""
    limiting: str | None = None
    """The metric of the quota that decides."""
    advice: str = ""
    """The quotas to raise for one more job, for people."""
    shares: tuple[Share, ...] = ()
