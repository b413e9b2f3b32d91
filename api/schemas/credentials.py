"""The schemas of credentials, the keys by which the platform uses providers."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from api.schemas.base import RequestBody, ResponseBody
from api.schemas.providers import Credentials


class Source(StrEnum):
    """The place from which a credential is read."""

    ENVIRONMENT = "environment"
    FILE = "file"
    STORE = "store"


class CredentialSetting(RequestBody):
    """A credential as the provider has given it; it is never shown again."""

    value: Annotated[Credentials, Field(description="The key, as its text or as its JSON")] = Field(
        repr=False
    )


class Credential(ResponseBody):
    """A credential of the account: where it is, and its last characters."""

    kind: str
    field: str
    """The name of the key among those of its kind; of a provider's own key, the provider's id."""
    reference: str
    source: Source
    masked: str
    """The last characters of the key, or of its id; empty where what is there is no key."""
    read_only: bool
    """Whether the key comes from the server, and cannot be changed here."""
    provider_ids: list[str]
    """The providers that use it, archived ones left out."""
    updated_at: datetime | None
    """When it was stored; null: it is not in the store."""


class CredentialList(ResponseBody):
    """All credentials of an account, those by kind and field first."""

    items: list[Credential]
