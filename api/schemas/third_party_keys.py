"""The schemas of third-party keys of projects."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from activities.third_party_keys.reading import MAX_CHARACTERS
from api.schemas.base import Page, RequestBody, ResponseBody
from workflows.contracts.third_party_keys import KeyType


class ThirdPartyKeySetting(RequestBody):
    """A key of another service, as a text."""

    type: KeyType
    value: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)] = Field(repr=False)
    """The key: a JSON object of its fields, or the shorter form or file of its type, which the
    guide of data lists."""


class ThirdPartyKey(ResponseBody):
    """A third-party key of a project, without the key itself, which cannot be read again."""

    project_id: str
    type: KeyType
    hint: str | None
    """What tells which key it is: the end of an id, an account's name, registries; never a secret.
    """
    set_by: str
    """The id of the user who has set the key."""
    updated_at: datetime


class ThirdPartyKeyPage(Page[ThirdPartyKey]):
    pass
