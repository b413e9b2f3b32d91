"""The schemas of members of projects."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from api.schemas.base import Page, RequestBody, ResponseBody
from workflows.rules.accounts.memberships import SHARED_NOUNS, mistake_in_permissions

Level = Literal["read", "all"]


def _nouns(given: dict[str, Level]) -> dict[str, Level]:
    if (mistake := mistake_in_permissions(given)) is not None:
        raise ValueError(mistake)
    return given


Permissions = Annotated[
    dict[str, Level], Field(min_length=1, max_length=len(SHARED_NOUNS)), AfterValidator(_nouns)
]
"""For each noun `read` (list, view, download logs) or `all` (create, change, remove too). Of
third-party keys, `credential`: whether jobs may use them, with either word. Of federated jobs,
`federated`: `all` alone, to create them; each account sees its own."""


class MemberChange(RequestBody):
    permissions: Permissions


class Member(ResponseBody):
    """A user of another account who may use a project."""

    project_id: str
    user_id: str
    email: str
    permissions: dict[str, str]
    created_at: datetime


class MemberPage(Page[Member]):
    pass
