"""What a cloud allows, and what runs within it."""

from workflows.contracts.base import Contract


class Quota(Contract):
    """One limit of a cloud and how much of it is used; None: the cloud did not say."""

    metric: str
    """As the cloud calls it, such as `NVIDIA_T4_GPUS`."""
    place: str
    """Where it counts: a cloud region, or `all regions`."""
    limit: int | None = None
    used: int | None = None

    @property
    def free(self) -> int | None:
        """What is left, never less than nothing; None where it is not known."""
        if self.limit is None or self.used is None:
            return None
        return max(self.limit - self.used, 0)


class Share(Contract):
    """How much of one quota a job needs, and how many jobs it leaves room for."""

    quota: Quota
    per_job: int
    jobs: int | None = None
    """None: the quota is not known."""


class RunnableJobs(Contract):
    """How many jobs with so many GPUs of a type may run at once in a region, by its quotas."""

    gpu_type: str
    gpu_count: int
    spot: bool
    jobs: int | None
    """None: a quota that decides is not known, which is not the same as none."""
    limiting: str | None = None
    """The metric of the quota that decides."""
    advice: str = ""
    """What to raise where for one more job."""
    shares: tuple[Share, ...] = ()
