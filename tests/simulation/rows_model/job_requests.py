"""What people ask of jobs. As api/services/jobs.py and job_submissions.py."""

from activities.billing.payers import credits_name
from activities.settings import settings
from api.services.job_responses import ENDED
from api.services.lifecycles import GONE
from tests.simulation.contracts import Refused
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.guests import reserved
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Job
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import EndRequest
from workflows.contracts.placement import Resources
from workflows.contracts.statuses import JobStatus, JobType
from workflows.rules.jobs.resources import demand_key, resources_of, with_memory

PERSON = "usr-000001"


class JobRequests:
    """Called in the transaction of a request; each returns the ids of its outbox rows."""

    def __init__(
        self, tables: Tables, connection: Connection, outbox: Outbox, ledger: Ledger
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._ledger = ledger

    def submit(self, account_id: str, submission: JobSubmission) -> tuple[str, list[str]]:
        """The id of the new job: job_submissions.py:submit_job. Raises: Refused."""
        account = self._tables.accounts.get(account_id)
        if account is None:
            raise Refused(f"{account_id}: there is no such account")
        asked = with_memory(submission)
        self._check_balance(account_id, resources_of(asked, self._known_gpu_types()))
        self._check_limit(account_id)
        self._check_room(account_id)
        now = self._connection.now()
        row = Job(
            id=self._tables.new_id("job"),
            account_id=account_id,
            name=asked.name,
            project_id=account.project_id,
            type=asked.type.value,
            priority=asked.priority,
            spec=asked,
            demand_key=demand_key(asked, account_id),
            waiting_since=now,
            created_at=now,
            updated_at=now,
        )
        return row.id, [self._outbox.create(row)]

    def cancel(self, row: Job, *, discards: bool) -> list[str]:
        _must_be_open(row, "canceled")
        end = _end().model_copy(update={"discards": discards})
        return self._tell(row, "cancel", end)

    def stop(self, row: Job) -> list[str]:
        if not JobType(row.type).is_service:
            raise Refused(f"job {row.name}: is of type {row.type}; cancel it instead")
        _must_be_open(row, "stopped")
        return self._tell(row, "stop", _end())

    def start(self, row: Job) -> list[str]:
        if row.status != JobStatus.STOPPED and row.retry_at is None:
            raise Refused(f"job {row.name}: is {row.status}; must be stopped to start again")
        if row.status == JobStatus.STOPPED:
            self._check_room(row.account_id)
        self._check_balance(row.account_id, resources_of(row.spec, self._known_gpu_types()))
        return self._tell(row, "start_again", None)

    def remove(self, row: Job) -> list[str]:
        if row.status == JobStatus.STOPPED:
            return self._tell(row, "remove", None)
        if row.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED):
            now = self._connection.now()
            return [self._outbox.enqueue(row.id, "start", None, now, is_removal=True)]
        if row.status not in GONE:
            raise Refused(f"job {row.name}: is {row.status}; must be ended to be removed")
        return []

    def _tell(self, row: Job, verb: str, argument: EndRequest | None) -> list[str]:
        return [self._outbox.enqueue(row.id, verb, argument, self._connection.now())]

    def _known_gpu_types(self) -> list[str]:
        """As job_submissions.py:known_gpu_types."""
        nodes = self._tables.open["node"].values()
        return sorted({node.gpu_type for node in nodes if node.gpu_type})

    def _check_balance(self, account_id: str, resources: Resources) -> None:
        if not resources.gpu_count and not settings().cpu_core_hour_microcredits:
            return
        now = self._connection.now()
        balance = self._ledger.balance(credits_name(account_id))
        if balance <= reserved(self._tables, account_id, now):
            raise Refused(f"account {account_id}: must have more than 0 credits")

    def _check_limit(self, account_id: str) -> None:
        rows = self._tables.open["job"].values()
        if len(rows) < settings().account_most_open_jobs:
            return
        found = sum(row.account_id == account_id for row in rows)
        if found >= settings().account_most_open_jobs:
            raise Refused(f"account {account_id}: found {found} open jobs")

    def _check_room(self, account_id: str) -> None:
        """As activities/accounts/stored_bytes.py:refusal_of_job; the model has no uploads."""
        outputs = sum(
            row.output_bytes or 0
            for row in self._tables.jobs.values()
            if row.output_bytes and row.account_id == account_id and row.status != "archived"
        )
        logs = self._tables.accounts[account_id].job_bytes
        if outputs + logs + 1 > settings().account_stored_max_bytes:
            raise Refused(f"account {account_id}: found {outputs + logs} bytes stored")


def _must_be_open(row: Job, deed: str) -> None:
    if row.status in (*ENDED, *GONE):
        raise Refused(f"job {row.name}: is {row.status}; cannot be {deed}")


def _end() -> EndRequest:
    return EndRequest(reason=f"asked for by {PERSON}")
