"""Access to datastores: what a node must know of one, sealed for the site of its region.

As run specs: workflows know only the name in the object store.
"""

from typing import Any

from pydantic import Field

from activities.secrets.sealing import site_box
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import datastore_access_name
from workflows.contracts.base import Contract
from workflows.contracts.datastores import DatastoreType


class DatastoreAccess(Contract):
    """Where a datastore is, and who may enter it."""

    id: str
    name: str
    type: DatastoreType
    host: str
    port: int | None = None
    root_path: str
    user: str | None = None
    password: str | None = Field(None, repr=False)
    is_public_only: bool = False
    """Whether its address must be public, because the machines of its region stand in networks
    that are not of the account."""

    def for_agent(self, networks: dict[str, Any]) -> dict[str, Any]:
        """The datastore in a request to the agent. networks: see `datastore_networks`."""
        found = self.model_dump(mode="json", exclude={"name", "is_public_only"})
        return {**found, "networks": {**networks, "is_public_only": self.is_public_only}}


class RegionalData(Contract):
    """A folder of a datastore that a run reads from or writes to."""

    datastore: DatastoreAccess
    path: str

    def for_agent(self, networks: dict[str, Any]) -> dict[str, Any]:
        """The folder in a request to the agent. networks: see `datastore_networks`."""
        return {"datastore": self.datastore.for_agent(networks), "path": self.path}


def seal_access(region_id: str, access: DatastoreAccess) -> str:
    """Store a sealed access; return its name. A second call replaces it. Blocks."""
    name = datastore_access_name(access.id)
    sealed = site_box(region_id).seal(access.model_dump_json().encode(), name.encode())
    blob_store(settings().storage).put(name, sealed)
    return name


def open_access(datastore_id: str, region_id: str) -> DatastoreAccess:
    """The sealed access of a datastore. Blocks.

    Raises: BlobMissingError, when there is none; SealBrokenError, when it was sealed for another
    site.
    """
    name = datastore_access_name(datastore_id)
    sealed = blob_store(settings().storage).get(name)
    return DatastoreAccess.model_validate_json(site_box(region_id).open(sealed, name.encode()))


def forget_access(datastore_id: str) -> None:
    """Remove the sealed access of a datastore; silent when there is none. Blocks."""
    blob_store(settings().storage).delete(datastore_access_name(datastore_id))
