"""Effects of metering and billing."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast, BillingRequest, WorkerUsage
from workflows.contracts.jobs import EndRequest
from workflows.effects.effect import Effect


class PostUsage(Contract):
    """Post all whole and part hours up to `through_s` that have not been posted."""

    usages: tuple[WorkerUsage, ...]


class TellJobToEnd(Contract):
    """Signal `stop` to the job, from something that is not a person."""

    job_id: str
    request: EndRequest


class BillingDone(Contract):
    """The job has posted its remainder: its billing workflow may end."""

    job_id: str
    attempt: int


begin_billing = Effect("begin_billing", BillingRequest, Done)
"""Start `job/{id}/billing`; a second call finds the first, and tells it where the nodes are."""

post_usage = Effect("post_usage", PostUsage, BalanceForecast)
"""Balanced postings with unique keys; a second call posts nothing."""

end_billing = Effect("end_billing", BillingDone, Done)
"""Signal the billing workflow to end; silent when it is gone."""

tell_job_to_end = Effect("tell_job_to_end", TellJobToEnd, Done)
