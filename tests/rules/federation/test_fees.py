"""The federated fee: 1.85 or 2.65 credits per worker-hour, and none where owners are one."""

from datetime import UTC, datetime

import pytest

from workflows.contracts.statuses import JobType
from workflows.rules.federation.fees import worker_hour_fee

NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("job_type", "microcredits"),
    [
        (JobType.TRAINING, 2_650_000),
        (JobType.INFERENCE, 1_850_000),
        (JobType.ENDPOINT, 1_850_000),
    ],
)
def test_the_fee_is_by_the_type_of_the_job(job_type: JobType, microcredits: int) -> None:
    assert worker_hour_fee(job_type, is_one_owner=False, at=NOW) == microcredits
    assert worker_hour_fee(job_type, is_one_owner=True, at=NOW) == 0


def test_there_was_no_fee_before_the_first_table() -> None:
    with pytest.raises(ValueError, match="federated fees: asked 2019"):
        worker_hour_fee(JobType.TRAINING, is_one_owner=False, at=NOW.replace(year=2019))
