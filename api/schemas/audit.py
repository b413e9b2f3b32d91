"""The schemas of audit entries and of the verification of their chains."""

from datetime import datetime

from api.schemas.base import Page, ResponseBody


class AuditEntry(ResponseBody):
    """An audit entry: which API key did what, to which resource, and when."""

    id: str
    account_id: str
    """The account that the entry concerns; `installation` for requests with an unknown key."""
    key_id: str | None
    action: str
    """The operation of the API; `authenticate` where no key was taken, `others` for refusals of
    too many kinds in one minute."""
    resource_id: str | None
    at: datetime
    actor_account_id: str | None
    """The account of the key, where it is another one than the account that the entry concerns."""
    acting_as: str | None
    """`administrator` or `member` (of a project), where the key is of another account."""
    address: str | None
    """The client's address. The address of an administrator is for administrators."""
    outcome: str | None
    """The code of the refusal, such as `unauthorized` or `forbidden`; null: it was done."""
    count: int | None
    """How many equal refused requests of about a minute the entry stands for; null: one."""
    number: int | None
    """The number of the entry in its account's chain; null for entries of a release before it."""
    previous_sha256: str | None
    sha256: str | None
    """The hash of the entry, which has the hash of the one before it; keep it to compare later."""


class AuditPage(Page[AuditEntry]):
    pass


class BrokenChain(ResponseBody):
    """The first entry of an account's chain that is not as it was written."""

    account_id: str
    number: int
    entry_id: str | None
    """Null, when the newest entries are missing."""
    reason: str


class AuditVerification(ResponseBody):
    """What the verification of all chains of audit entries has found."""

    intact: bool
    """Whether no chain is broken. Entries that are unchained prove nothing either way."""
    chains: int
    entries: int
    unchained_entries: int
    """Entries that a release before the chains has written."""
    newest_unchained_at: datetime | None
    broken: list[BrokenChain]
