"""Datasets at Kaggle, by its HTTP API.

Kaggle's own library reads the key of the host when it is imported, ends the process where it has
none, and follows whatever address it is sent to; so its API is asked here as files of the web are.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activities.artifacts.sources.tar_streams import OpenedSource, refused, unavailable
from activities.artifacts.sources.web import RemoteFile, open_zip, remote_bytes
from activities.settings import settings
from workflows.contracts.artifacts import KaggleSource

MOST_DESCRIPTION_BYTES = 4 << 20


def open_kaggle(
    source: KaggleSource, key: Mapping[str, str] | None, scratch: Path, most_bytes: int
) -> OpenedSource:
    """The files of one version of a dataset, which never change. Blocking.

    key: the fields of a third-party key; None: the dataset is public.
    scratch: a folder for the archive, as which Kaggle sends a dataset.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    authorization = ""
    if key is not None:
        login = f"{key['username']}:{key['key']}".encode()
        authorization = f"Basic {base64.b64encode(login).decode()}"
    base = f"{settings().kaggle_endpoint.rstrip('/')}/api/v1/datasets"
    version = source.version or _newest(source, f"{base}/view/{source.dataset}", authorization)
    url = f"{base}/download/{source.dataset}?datasetVersionNumber={version}"
    archive = RemoteFile(url, None, "", authorization)
    return open_zip(archive, scratch, most_bytes, f"kaggle {source.dataset} {version}")


def _newest(source: KaggleSource, url: str, authorization: str) -> int:
    """The number of the newest version of a dataset."""
    content = b""
    for chunk in remote_bytes(RemoteFile(url, None, "", authorization), 0):
        content += chunk
        if len(content) > MOST_DESCRIPTION_BYTES:
            raise refused(f"{url}: says more than {MOST_DESCRIPTION_BYTES} bytes")
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unavailable(f"{url}: its answer is no JSON") from error
    number = found.get("currentVersionNumber") if isinstance(found, dict) else None
    if not isinstance(number, int) or number < 1:
        raise unavailable(f"{url}: says no version of {source.dataset}")
    return number
