"""A job that has finished and delivers, though it was asked to end beside its last exit."""

import pytest

from tests.workflows.primitives.played import played
from workflows.contracts.jobs import EndRequest, JobRequest
from workflows.contracts.statuses import JobStatus, JobType
from workflows.effects.job_data import OutputDelivered
from workflows.jobs.delivery import Delivery
from workflows.jobs.termination import Termination

REQUEST = JobRequest(
    job_id="job-1",
    account_id="acc-1",
    project_id="prj-1",
    name="digits",
    type=JobType.TRAINING,
    delivers_output=True,
)


@pytest.mark.parametrize(
    ("code", "event", "sent"),
    [("insufficient-credits", "job.delivered", 1), ("requested", "job.not-delivered", 0)],
)
def test_only_a_person_who_cancels_beside_the_last_exit_prevents_the_delivery(
    code: str, event: str, sent: int
) -> None:
    events: list[str] = []
    deliveries: list[str] = []

    def deliver(*_: object) -> OutputDelivered:
        deliveries.append("s3://results")
        return OutputDelivered(place=deliveries[-1])

    async def story() -> None:
        termination = Termination(REQUEST)
        termination.cancel(EndRequest(reason="no credits are left", code=code))
        termination.conclude([], is_service=False)
        delivery = Delivery(REQUEST, termination)
        assert delivery.begins(JobStatus.FINISHED)
        events.append((await delivery.run(1)).type)

    played(story, {"deliver_output": deliver})
    assert events == [event]
    assert len(deliveries) == sent
