"""Audit entries: which of them a caller may read, and the verification of their chains."""

from dataclasses import asdict

from sqlmodel import Session, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from activities.accounts import audit
from activities.db import tables
from api.authorization import Caller
from api.schemas.audit import AuditEntry, AuditVerification, BrokenChain


def entries_of(caller: Caller) -> SelectOfScalar[tables.AuditRow]:
    """Entries that concern the account, and those of what its keys did for other accounts.

    An administrator also reads the entries that concern no account.
    """
    mine = [
        col(tables.AuditRow.account_id) == caller.account_id,
        col(tables.AuditRow.actor_account_id) == caller.account_id,
    ]
    if caller.is_administrator and caller.account_id == caller.home_account_id:
        mine.append(col(tables.AuditRow.account_id) == audit.INSTALLATION)
    return select(tables.AuditRow).where(or_(*mine))


def entry_response(caller: Caller, row: tables.AuditRow) -> AuditEntry:
    fields = row.model_dump()
    if row.acting_as == "administrator" and not caller.is_administrator:
        fields["address"] = None
    return AuditEntry(**fields)


def verification(session: Session) -> AuditVerification:
    """Verify all chains; the time that it takes grows with the number of entries."""
    found = audit.verify(session)
    return AuditVerification(
        intact=not found.broken,
        chains=found.chains,
        entries=found.entries,
        unchained_entries=found.unchained,
        newest_unchained_at=found.newest_unchained_at,
        broken=[BrokenChain(**asdict(each)) for each in found.broken],
    )
