"""What the audit log has beside changes: requests that were refused, and reads by others.

A refusal costs no transaction: equal ones are counted in memory, and written once a minute. A read
is written before it is answered, the first of each minute.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from fastapi import Request
from fastapi.requests import HTTPConnection

from activities.accounts import audit
from activities.db.ids import new_id
from activities.db.session import AWAY, database
from activities.db.tables import ArtifactRow, AuditRow, Job
from api.authorization import Caller, KeyRefused, address_of
from api.problems import Problem

MINUTE_S = 60.0
MAX_REFUSALS = 100
"""How many different refusals of a minute are counted; the others are counted together."""
MAX_READS = 10_000
AUTHENTICATION = "authenticate"
log = logging.getLogger("api")


def entry_of(caller: Caller, action: str, about: tuple[str, str | None], at: datetime) -> AuditRow:
    """The audit entry of what a caller does.

    about: the account and the resource that it concerns.
    """
    account_id, resource_id = about
    is_own = account_id == caller.home_account_id
    return AuditRow(
        id=new_id("aud"),
        account_id=account_id,
        key_id=caller.key_id,
        action=action,
        resource_id=resource_id,
        at=at,
        actor_account_id=None if is_own else caller.home_account_id,
        acting_as=None if is_own else "administrator" if caller.is_administrator else "member",
        address=caller.address,
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """What equal refused requests have in common; the fields are those of the audit entry."""

    account_id: str
    action: str
    outcome: str
    key_id: str | None = None
    actor_account_id: str | None = None
    acting_as: str | None = None
    address: str | None = None


def refusal_of(request: HTTPConnection, problem: Problem) -> Refusal:
    """What a refused request is counted by: its key, else its address."""
    address = address_of(request)
    if isinstance(problem, KeyRefused):
        account_id = problem.account_id or audit.INSTALLATION
        key_id = problem.key_id
        return Refusal(account_id, AUTHENTICATION, problem.code, key_id, address=address)
    route = request.scope["route"]
    action = getattr(route, "operation_id", None) or route.name
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None:
        return Refusal(audit.INSTALLATION, action, problem.code, address=address)
    entry = entry_of(caller, action, (caller.account_id, None), datetime.now(UTC))
    return Refusal(
        entry.account_id,
        action,
        problem.code,
        entry.key_id,
        entry.actor_account_id,
        entry.acting_as,
        address,
    )


class Refusals:
    """The refused requests of this process since it last wrote them as audit entries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[Refusal, tuple[datetime, int]] = {}

    def take(self, request: HTTPConnection, problem: Problem) -> None:
        """Count a refused request, if the problem is one of its key or its caller."""
        if problem.code in ("unauthorized", "forbidden"):
            self._count(refusal_of(request, problem), datetime.now(UTC), 1)

    def write(self) -> None:
        """Write what was counted, in one transaction. Blocking.

        While the database does not answer, the counts are kept.
        """
        with self._lock:
            counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            with database().write() as session:
                for refusal in sorted(counted, key=lambda each: each.account_id):
                    at, count = counted[refusal]
                    row = AuditRow(id=new_id("aud"), at=at, count=count, **asdict(refusal))
                    audit.append(session, row)
        except AWAY as error:
            log.warning("refusals are not in the audit log yet: database: %s", error)
            for refusal, (at, count) in counted.items():
                self._count(refusal, at, count)

    async def write_regularly(self) -> None:
        """Write every minute until canceled."""
        while True:
            await asyncio.sleep(MINUTE_S)
            await asyncio.to_thread(self.write)

    def _count(self, refusal: Refusal, at: datetime, count: int) -> None:
        with self._lock:
            if refusal not in self._counted and len(self._counted) >= MAX_REFUSALS:
                refusal = Refusal(audit.INSTALLATION, "others", refusal.outcome)
            first_at, before = self._counted.get(refusal, (at, 0))
            self._counted[refusal] = (min(at, first_at), before + count)


class Reads:
    """Reads of what others own; equal ones of one minute leave one audit entry."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._noted: OrderedDict[tuple[str | None, ...], float] = OrderedDict()

    def note_job(self, request: Request, caller: Caller, job: Job) -> None:
        """Note that a job's log or output is read, unless its owner or its creator reads it."""
        if caller.user_id != job.creator_user_id:
            self.note(request, caller, (job.account_id, job.id))

    def note_artifact(self, request: Request, caller: Caller, artifact: ArtifactRow) -> None:
        """Note that an artifact's content is read, unless its owner or its creator reads it."""
        if caller.user_id != artifact.creator_user_id:
            self.note(request, caller, (artifact.account_id, artifact.id))

    def note(self, request: Request, caller: Caller, about: tuple[str, str]) -> None:
        """Write the audit entry of a read of another account's resource. Blocking.

        about: the account that owns the resource, and the resource.
        """
        self.note_each(request, caller, [about])

    def note_each(self, request: Request, caller: Caller, read: Iterable[tuple[str, str]]) -> None:
        """Write the audit entries of a read of several resources, in one transaction. Blocking.

        read: of each the account that owns it, and the resource; the caller's own leave none.
        """
        action = request.scope["route"].operation_id
        asked = (caller.key_id, caller.address, action)
        # In the order of accounts, whose chains are locked until the commit.
        others = sorted(each for each in read if each[0] != caller.home_account_id)
        first = [each for each in others if self._is_first((*asked, *each))]
        if not first:
            return
        try:
            with database().write() as session:
                for each in first:
                    audit.append(session, entry_of(caller, action, each, datetime.now(UTC)))
        except Exception:  # Whatever it was, no entry is written: the next read notes them.
            with self._lock:
                for each in first:
                    self._noted.pop((*asked, *each), None)
            raise

    def note_session(
        self, caller: Caller, action: str, about: tuple[str, str], *, is_rare: bool
    ) -> None:
        """Write the audit entry of a session, also of the owner's own. Blocking.

        is_rare: whether each counts, and not the first of each minute.
        """
        session = (caller.key_id, caller.address, action, *about)
        if not is_rare and not self._is_first(session):
            return
        with database().write() as rows:
            audit.append(rows, entry_of(caller, action, about, datetime.now(UTC)))

    def _is_first(self, read: tuple[str | None, ...]) -> bool:
        now = self._clock()
        with self._lock:
            while self._noted and now - next(iter(self._noted.values())) >= MINUTE_S:
                self._noted.popitem(last=False)
            if read in self._noted:
                return False
            if len(self._noted) >= MAX_READS:
                self._noted.popitem(last=False)
            self._noted[read] = now
            return True
