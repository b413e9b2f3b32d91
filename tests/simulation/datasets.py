"""What the parts of the simulator agree on of datasets; `contracts.py` has the rest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ResourceView:
    """A provider, a region or a dataset."""

    resource_id: str
    status: str
    status_reason: str | None


class DatasetRows(Protocol):
    """The rows of datasets."""

    def add_dataset(self, account_id: str) -> str:
        """A dataset from the web. Raises: Refused."""

    def datasets(self) -> Iterable[ResourceView]: ...

    def dataset_status(self, dataset_id: str) -> str:
        """As artifacts/transfers.py:_tell reads it; empty: no such row."""


class Contents(Protocol):
    """What the object store has of datasets."""

    def discard_content(self, artifact_id: str) -> None:
        """Remove what is stored of one; silent when there is nothing.

        Raises: ApplicationError, while the store is away.
        """

    def contents(self) -> Mapping[str, int]:
        """How many parts are stored of each dataset of which anything is."""
