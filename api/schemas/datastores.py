"""The schemas of datastores."""

from typing import Annotated

from pydantic import AfterValidator, Field

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResourceId
from workflows.contracts.datastores import DatastoreType
from workflows.rules.datastores.places import ADDRESS_RULE, is_user, parse_address


def _address(text: str) -> str:
    if parse_address(text) is None:
        raise ValueError(ADDRESS_RULE)
    return text


def _user(text: str | None) -> str | None:
    if text is not None and not is_user(text):
        raise ValueError("is a user's name, without / : and ,")
    return text


class DatastoreCreation(RequestBody):
    region_id: ResourceId
    name: Name
    type: DatastoreType
    address: Annotated[str, Field(max_length=300), AfterValidator(_address)]
    """The server as nodes of the region reach it: a name or an address, with `:PORT` where it is
    not the usual one."""
    root_path: Annotated[str, Field(max_length=1100)]
    """What jobs may use, and nothing above it: `/EXPORT/FOLDER` of NFS, `/SHARE/FOLDER` of SMB."""
    user: Annotated[str | None, Field(max_length=200), AfterValidator(_user)] = None
    """The user of SMB, as `NAME` or `DOMAIN\\NAME`; NFS has none."""
    password: Annotated[str | None, Field(min_length=1, max_length=500, repr=False)] = None
    """The password of SMB's user; it is stored encrypted and never shown."""


class Datastore(Lifecycle):
    region_id: str
    type: DatastoreType
    address: str
    root_path: str
    user: str | None
    has_password: bool
    way: str | None
    """How the node that checked it last reaches it: `kernel`, where it is mounted and jobs read and
    write it in place, or `user-space`, where input and output are copied; null: not checked yet."""


class DatastorePage(Page[Datastore]):
    pass
