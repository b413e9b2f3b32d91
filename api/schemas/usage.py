"""The schemas of usage: who used what of an account."""

from datetime import datetime
from enum import StrEnum

from activities.billing.periods import Cut
from api.schemas.base import ResponseBody


class UsageKind(StrEnum):
    """How something of an account was used."""

    OWN = "own"
    """A project on machines of its own account."""
    RENTED = "rented"
    """A project on machines of a cloud that its own account has rented."""
    PUBLIC = "public"
    """A project on machines of another account."""
    FEDERATED = "federated"
    """A project with the model of another account."""


class UsageLine(ResponseBody):
    begins_at: datetime
    """When this piece of the period begins."""
    consumer_account_id: str
    """The account for which the jobs were submitted; of federated jobs, the owner of the project,
    which the owner of the model has submitted them for."""
    project_id: str | None
    """Null for a project of another account."""
    model_id: str | None
    """Null without a model, and for a model of another account in a project of another account."""
    kind: UsageKind
    job_count: int
    seconds: int
    """The measured seconds of the jobs' commands, all workers together."""
    gpu_seconds: int
    charged_microcredits: int
    federated_fee_microcredits: int
    """What the owner of the model was charged beside that."""


class Usage(ResponseBody):
    """Who used the machines, the projects and the models of an account."""

    account_id: str
    begins_at: datetime
    ends_at: datetime
    by: Cut
    items: list[UsageLine]
    is_whole: bool
    """Whether these are all lines; else ask for a shorter period."""
