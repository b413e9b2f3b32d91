"""The deliveries of outputs to their destinations. As activities/artifacts/deliveries.py."""

from temporalio.exceptions import ApplicationError

from activities.storage.names import output_name, outputs_of
from tests.simulation.contracts import Attempt, Rows, Sleep, Steps, Temporal
from tests.simulation.outside.store import Store
from tests.simulation.outside.transfers import PARTS_S
from workflows.contracts.base import Contract
from workflows.contracts.deliveries import DeliveryStatus
from workflows.contracts.errors import REFUSED, STALE
from workflows.effects.job_data import DeliverOutput, OutputDelivered

PARTS = 2


class Deliveries:
    """A destination that takes an output in two parts; a repeat goes on after what it has."""

    def __init__(self, temporal: Temporal, store: Store) -> None:
        self._random = temporal.random
        self._store = store
        self.arrived: dict[str, int] = {}
        """How many parts of a job's output have arrived."""
        self.attempts: dict[str, int] = {}
        """The attempt of the job whose output has arrived last."""
        self.rows: Rows | None = None

    def deliver_output(self, _: Attempt, command: DeliverOutput) -> Contract | Steps:
        self._check(command.job_id)
        names = self._store.names(outputs_of(command.job_id))
        if output_name(command.job_id, 0, command.attempt) not in names:
            raise ApplicationError(
                f"{command.job_id}: worker 0 has no output", type=REFUSED, non_retryable=True
            )
        return self._deliver(command)

    def _deliver(self, command: DeliverOutput) -> Steps:
        while self.arrived.get(command.job_id, 0) < PARTS:
            yield Sleep(self._random.choice(PARTS_S))
            self._check(command.job_id)
            self.arrived[command.job_id] = self.arrived.get(command.job_id, 0) + 1
        self.attempts[command.job_id] = command.attempt
        return OutputDelivered(place="s3://results", file_count=1, sent_bytes=1)

    def _check(self, job_id: str) -> None:
        """Raises: ApplicationError `Stale`, when the job does not deliver any more."""
        status = None if self.rows is None else self.rows.delivery_status(job_id)
        if status != DeliveryStatus.PENDING:
            raise ApplicationError(
                f"{job_id}: is not being delivered any more", type=STALE, non_retryable=True
            )
