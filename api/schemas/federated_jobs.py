"""The schemas of federated jobs: the model of one account at the data of another one."""

from enum import StrEnum

from api.schemas.base import Lifecycle, Page
from workflows.contracts.federation import LogPolicy


class FederatedRole(StrEnum):
    """What the reader's account is in a federated job."""

    CREATOR = "creator"
    CONSUMER = "consumer"
    BOTH = "both"


class FederatedJob(Lifecycle):
    """A federated job; `account_id` is the creator's, which owns the model."""

    role: FederatedRole
    """What the account that asks is: the creator, the consumer, or both."""
    consumer_account_id: str
    """The owner of the project, of the machines and of the data."""
    project_id: str
    model_id: str
    type: str
    creator_user_id: str
    creator_name: str
    """The person by e-mail address, for who may list users; one of another account: `a member`."""
    job_id: str | None
    """The job that runs; null: it is not created yet."""
    job_status: str | None
    egress: list[str]
    """All that the job may reach; empty: no network at all, or the job is not created yet."""
    logs: LogPolicy | None
    """What of its logs is shown; null: the job is not created yet."""
    needs_attestation: bool
    """Whether the key of the model goes only to a machine that has proved what runs on it."""
    worker_seconds: int
    """For how long its command has run, as far as it is posted."""
    federated_fee_microcredits: int
    """What the creator was charged for that; 0 where one account owns model and project."""


class FederatedJobPage(Page[FederatedJob]):
    pass
