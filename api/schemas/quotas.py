"""The schemas of quotas: the limits in a cloud region, and how many jobs they allow."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.schemas.base import RequestBody, ResponseBody
from workflows.rules.catalogue.gpu_names import MAX_GPUS_PER_WORKER


class QuotasQuery(RequestBody):
    """The quotas to read, as query parameters."""

    provider_id: Annotated[str, Field(max_length=100)]
    cloud_region: Annotated[str, Field(max_length=100, description="such as us-central1")]
    gpu_count: Annotated[
        int, Field(ge=1, le=MAX_GPUS_PER_WORKER, description="GPUs that a job would have")
    ] = 1


class Quota(ResponseBody):
    """One limit of the cloud; a value that the cloud does not give is null, which is not 0."""

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
    """How many such jobs may run at once beside the present usage; null where it is unknown."""
    limiting: str | None
    """The metric of the quota that limits the number of jobs."""
    advice: str
    """Which quota to raise, and where, for one more job."""
    microcredits_per_hour: int | None
    """The estimated price of one such machine by the catalogue; null where none is sold so."""


class QuotaList(ResponseBody):
    """The quotas as the cloud gives them now; they are not stored."""

    provider_id: str
    cloud_region: str
    read_at: datetime
    raise_at: str
    """The address where a person asks the cloud for higher quotas."""
    runnable: list[RunnableJobs]
    refusal: str | None
    """Why no job could run in a region there; null where some job can, or may be able to."""
    quotas: list[Quota]
