"""The catalogue of Google Cloud, read from the files in `facts/`."""

import tomllib
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from workflows.rules.catalogue.clouds import CloudCatalogue, read_catalogue
from workflows.rules.catalogue.permanent_machines import StorageClasses, read_storage_classes

FACTS = Path(__file__).parent / "facts"


@lru_cache(maxsize=1)
def gcp_catalogue() -> CloudCatalogue:
    """The catalogue, which each process reads once.

    Raises: ValueError, when the content of a file is not valid.
    """
    return load_catalogue(FACTS)


@lru_cache(maxsize=1)
def gcp_storage() -> StorageClasses:
    """The storage classes, which each process reads once.

    Raises: ValueError, when the content of a file is not valid.
    """
    return read_storage_classes(_read(FACTS / "storage.toml"), gcp_catalogue())


def load_catalogue(folder: Path) -> CloudCatalogue:
    """The catalogue in `regions.toml`, `machines.toml` and `prices.toml` of a folder.

    Raises: ValueError, when the content of a file is not valid.
    """
    return read_catalogue(*(_read(folder / f"{name}.toml") for name in _FILES))


_FILES = ("regions", "machines", "prices")


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(), parse_float=Decimal)
