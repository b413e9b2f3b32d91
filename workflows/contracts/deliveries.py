"""Deliveries: what is sent of a job's output to a destination outside the platform.

The platform stores the output as well, until the job is removed. The bytes of an output never pass
through a workflow.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from workflows.contracts.artifacts import HUB_NAME, KAGGLE_NAME, git_url, web_url
from workflows.contracts.base import Contract

JOB_ID = "{job_id}"
"""Stands for the id of the job in the prefix, the URL or the name of a destination."""


class DeliveryStatus(StrEnum):
    """The statuses of a job's delivery; a job whose output is not sent anywhere has none."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class _Destination(Contract):
    """Where an output is sent; it has no secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KeyedDestination(_Destination):
    """A destination that the project's third-party key of its type opens."""


_Prefix = Annotated[str, Field(max_length=900, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""What the names begin with that files have there; those of several workers go into `worker-0`,
`worker-1` and so on below it."""
_Branch = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[0-9A-Za-z][A-Za-z0-9_./+-]*$")
]


class ObjectStoreDestination(KeyedDestination):
    """A bucket at Amazon or Wasabi; objects of the same names are replaced."""

    type: Literal["aws", "wasabi"]
    bucket: str = Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    prefix: _Prefix = ""
    region: str = Field(default="us-east-1", max_length=32, pattern=r"^[a-z0-9][a-z0-9-]*$")


class GoogleStorageDestination(KeyedDestination):
    """A bucket at Google; objects of the same names are replaced."""

    type: Literal["gcp"]
    bucket: str = Field(min_length=3, max_length=222, pattern=r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$")
    prefix: _Prefix = ""


class AzureDestination(KeyedDestination):
    """A container at Azure; blobs of the same names are replaced."""

    type: Literal["azure"]
    account: str = Field(min_length=3, max_length=24, pattern=r"^[a-z0-9]+$")
    container: str = Field(min_length=1, max_length=63, pattern=r"^([a-z0-9][a-z0-9-]*|\$root)$")
    prefix: _Prefix = ""


class WebDestination(_Destination):
    """A URL to which the output is sent by PUT, as one tar.gz."""

    type: Literal["web"]
    url: Annotated[str, AfterValidator(web_url)] = Field(
        max_length=2000, pattern=r"^https?://[!-~]+$"
    )
    secret: str | None = Field(
        default=None, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )
    """The name of the project's secret that is sent as the header `Authorization`; null: none."""


class GitDestination(KeyedDestination):
    """A branch of a git repository, to which one commit with the output is pushed."""

    type: Literal["git"]
    url: Annotated[str, AfterValidator(git_url)] = Field(
        max_length=2000, pattern=r"^(https|ssh)://[!-~]+$"
    )
    branch: _Branch = "main"
    prefix: _Prefix = ""


class HuggingFaceDestination(KeyedDestination):
    """A repository at Hugging Face, in which one commit with the output is made."""

    type: Literal["huggingface"]
    repo: str = Field(max_length=200, pattern=rf"^{HUB_NAME}/{HUB_NAME}$")
    kind: Literal["model", "dataset"] = "model"
    branch: _Branch = "main"
    prefix: _Prefix = ""


class KaggleDestination(KeyedDestination):
    """A dataset at Kaggle, which the key's owner has and which gets a new version."""

    type: Literal["kaggle"]
    dataset: str = Field(max_length=200, pattern=rf"^{KAGGLE_NAME}/{KAGGLE_NAME}$")


class EntityDestination(_Destination):
    """A new dataset, model or checkpoint of the job's project."""

    type: Literal["dataset", "model", "checkpoint"]
    name: str = Field(default=JOB_ID, min_length=1, max_length=100)


Destination = Annotated[
    ObjectStoreDestination
    | GoogleStorageDestination
    | AzureDestination
    | WebDestination
    | GitDestination
    | HuggingFaceDestination
    | KaggleDestination
    | EntityDestination,
    Field(discriminator="type"),
]
"""The destination of an output."""
