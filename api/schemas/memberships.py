"""The schemas of memberships: the accounts and projects that a person belongs to."""

from datetime import datetime

from api.schemas.base import ResponseBody


class AccountMembership(ResponseBody):
    account_id: str
    name: str
    role: str
    is_own: bool
    """Whether it is the user's own account, which nobody leaves."""
    is_current: bool
    """Whether the key of this request is of it."""
    created_at: datetime


class ProjectMembership(ResponseBody):
    project_id: str
    account_id: str
    name: str
    permissions: dict[str, str]
    created_at: datetime


class Memberships(ResponseBody):
    """The accounts and the projects of others that the caller's user belongs to."""

    accounts: list[AccountMembership]
    projects: list[ProjectMembership]
