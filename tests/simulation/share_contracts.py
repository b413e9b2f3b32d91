"""What the rows of a life have of datastores, beside what `contracts.py` says of all else."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

View_co = TypeVar("View_co", covariant=True)


class ShareRows(Protocol[View_co]):
    """The part of `Rows` that is about datastores."""

    def add_datastore(self, region_id: str) -> str:
        """A share of the region, for an account with the plan team. Raises: Refused."""

    def datastores(self) -> Iterable[View_co]: ...
    def has_password(self, datastore_id: str) -> bool:
        """Whether a datastore's password is kept with its row."""
