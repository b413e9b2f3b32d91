"""The federated fee: what the creator of a federated job pays for each hour of a worker."""

from dataclasses import dataclass
from datetime import UTC, datetime

from workflows.contracts.statuses import JobType


@dataclass(frozen=True)
class FederatedFeeTable:
    """The fees in microcredits per worker-hour, whatever the GPU; valid until the next table."""

    valid_from: datetime
    training: int
    inference: int
    """Of endpoints as well."""


FEDERATED_FEES = (
    FederatedFeeTable(
        valid_from=datetime(2020, 1, 1, tzinfo=UTC), training=2_650_000, inference=1_850_000
    ),
)
"""The fee tables, oldest first. A new fee is a new table; runs that have begun keep theirs."""


def worker_hour_fee(job_type: JobType, is_one_owner: bool, at: datetime) -> int:
    """The federated fee in microcredits per worker-hour.

    is_one_owner: whether one account owns the model and the project, which costs no fee. at: when
    the run began.
    Raises: ValueError, for an instant before the first table.
    """
    valid = [table for table in FEDERATED_FEES if table.valid_from <= at]
    if not valid:
        first = FEDERATED_FEES[0].valid_from
        raise ValueError(f"federated fees: asked {at}, the first are of {first}")
    if is_one_owner:
        return 0
    return valid[-1].training if job_type is JobType.TRAINING else valid[-1].inference
