"""Quotas: what a cloud allows in one of its regions, and how many jobs that leaves room for."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.schemas.base import RequestBody, ResponseBody
from workflows.rules.catalogue.gpu_names import MAX_GPUS_PER_WORKER


class QuotasQuery(RequestBody):
    """Which ones, as query parameters."""

    provider_id: Annotated[str, Field(max_length=100)]
    cloud_region: Annotated[str, Field(max_length=100, description="such as us-central1")]
    gpu_count: Annotated[
        int, Field(ge=1, le=MAX_GPUS_PER_WORKER, description="GPUs that a job would have")
    ] = 1


class Quota(ResponseBody):
    """One limit of the cloud; what it did not tell is null, which is not the same as none."""

    metric: str
    place: str
    """A cloud region, or `all regions`."""
    limit: int | None
    used: int | None
    free: int | None


class RunnableJobs(ResponseBody):
    gpu_type: str
    gpu_count: int
    spot: bool
    jobs: int | None
    """How many such jobs may run at once beside what is used now; null where nobody knows."""
    limiting: str | None
    """The metric of the quota that decides."""
    advice: str
    """What to raise where for one more job."""
    microcredits_per_hour: int | None
    """What one such machine costs by the catalogue, an estimate; null where none is sold so."""


class QuotaList(ResponseBody):
    """As the cloud tells now; nothing of it is kept."""

    provider_id: str
    cloud_region: str
    read_at: datetime
    raise_at: str
    """Where a person asks for more."""
    runnable: list[RunnableJobs]
    refusal: str | None
    """Why a region there would be of no use; null where something runs, or may run."""
    quotas: list[Quota]
