"""The schemas of invitations, and of what accepting one gives."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.schemas.accounts import Email, UserRole
from api.schemas.base import Page, RequestBody, ResourceId, ResponseBody
from api.schemas.members import Permissions


class InvitationCreation(RequestBody):
    """An invitation to a project with permissions there, or to the account with a role there."""

    email: Email
    """The address of the person, who accepts with a key of a user that claims this address."""
    project_id: ResourceId | None = None
    permissions: Permissions | None = None
    """What the person may do in the project; needed with `project_id`."""
    role: UserRole | None = None
    """The person's role in the account; left out where a project is named."""


class Invitation(ResponseBody):
    id: str
    account_id: str
    project_id: str | None
    """Null: the invitation is to the account."""
    permissions: dict[str, str] | None
    role: str | None
    email: str
    inviter_user_id: str
    status: str
    """`pending`, `accepted`, `expired` or `withdrawn`."""
    accepted_by: str | None
    created_at: datetime
    expires_at: datetime


class NewInvitation(Invitation):
    secret: str
    """The one-time token, which is shown only in this answer: pass it on to the person."""


class InvitationPage(Page[Invitation]):
    pass


class Acceptance(RequestBody):
    token: Annotated[str, Field(min_length=1, max_length=200)] = Field(repr=False)
    """The secret of the invitation."""


class AcceptedInvitation(ResponseBody):
    """What an invitation has made of the caller's user."""

    id: str
    account_id: str
    project_id: str | None
    permissions: dict[str, str] | None
    role: str | None
    key_id: str | None
    """The key for the account, with the scopes and the expiry of the key that has accepted."""
    secret: str | None
    """That key itself, `bl_…`, which is shown only in this answer; null for a project, which the
    user's own keys reach."""
