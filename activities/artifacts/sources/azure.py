"""Containers at Azure: the blobs whose names begin alike, each in the version that was listed.

Azure's own library, because it reads each range on the condition that the blob has the ETag that
was listed, which fsspec's does not. It is imported when a source needs it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import ContainerClient

from activities.artifacts.sources.tar_streams import (
    OpenedSource,
    SourceFile,
    name_below,
    refused,
    tar_of,
    tar_size,
    unavailable,
)
from activities.settings import settings
from workflows.contracts.artifacts import MOST_FILES, AzureSource

READ_BYTES = 4 << 20
TIMEOUTS_S: dict[str, Any] = {"connection_timeout": 10, "read_timeout": 60}
RETRIES: dict[str, Any] = {"retry_total": 3}
HOST = "https://{account}.blob.core.windows.net"


def open_container(source: AzureSource, key: Mapping[str, str] | None) -> OpenedSource:
    """The blobs of a container, read by ranges of the version that was listed. Blocking.

    key: the fields of a third-party key; None: the container is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    client = container_client(source.account, source.container, key)
    files, marks = [], hashlib.sha256()
    for blob in _listed(client, source):
        name, etag = name_below(source.prefix, blob.name), str(blob.etag)
        marks.update(f"{name}\0{blob.size}\0{etag}\n".encode("utf-8", "surrogatepass"))
        read = partial(_bytes, client, (blob.name, etag), blob.size)
        files.append(SourceFile(name, blob.size, read))
    where = f"azure {source.account} {source.container} {source.prefix}"
    if not files:
        raise refused(f"{where}: there is no blob")
    identity = f"{where} {marks.hexdigest()}"
    return OpenedSource(identity, partial(tar_of, files), tar_size(files))


def container_client(account: str, container: str, key: Mapping[str, str] | None) -> Any:
    """A container, as Azure's library speaks to it.

    key: the fields of a third-party key; None: nobody logs in.
    Raises: ApplicationError `Refused`, for a key of another account.
    """
    if key is not None and key["account_name"] != account:
        raise refused(f"azure {account}: the project's key is of the account {key['account_name']}")
    endpoint = settings().azure_endpoint
    url = f"{endpoint.rstrip('/')}/{account}" if endpoint else HOST.format(account=account)
    credential: Any = None
    if key is not None and "account_key" in key:
        credential = {"account_name": account, "account_key": key["account_key"]}
    elif key is not None:
        from azure.core.credentials import AzureSasCredential  # noqa: PLC0415

        credential = AzureSasCredential(key["sas_token"].removeprefix("?"))
    return ContainerClient(url, container, credential, **TIMEOUTS_S, **RETRIES)


def _listed(client: Any, source: AzureSource) -> list[Any]:
    """The blobs below the prefix, in the order of their names; no folders."""
    prefix = source.prefix.rstrip("/")
    where = f"{source.account}/{source.container}/{prefix}"
    with _Told(where):
        found = list(islice(client.list_blobs(name_starts_with=prefix or None), MOST_FILES + 1))
    if len(found) > MOST_FILES:
        raise refused(f"{where}: has at most {MOST_FILES} blobs")
    below = (blob for blob in found if not prefix or f"{blob.name}/".startswith(f"{prefix}/"))
    return sorted((blob for blob in below if not blob.name.endswith("/")), key=lambda b: b.name)


def _bytes(client: Any, blob: tuple[str, str], size: int, begin: int) -> Iterator[bytes]:
    """The bytes of a blob from one on. Raises: ApplicationError, when it has changed."""
    name, etag = blob
    same = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    while begin < size:
        end = min(begin + READ_BYTES, size)
        with _Told(name):
            chunk = client.download_blob(name, offset=begin, length=end - begin, **same).readall()
        if len(chunk) != end - begin:
            raise unavailable(f"{name}: broke off at byte {begin + len(chunk)}")
        begin = end
        yield chunk


class _Told:
    """Turns what the store refuses into an ApplicationError about this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ResourceModifiedError):
            raise unavailable(f"{self._name}: has changed while it was read") from error
        if isinstance(error, ResourceNotFoundError):
            raise refused(f"{self._name}: there is no such container or blob") from error
        if isinstance(error, ClientAuthenticationError):
            raise refused(f"{self._name}: the store refuses the key") from error
        if isinstance(error, HttpResponseError) and error.status_code in (400, 401, 403, 409):
            raise refused(f"{self._name}: the store refuses it: {error.status_code}") from error
        if isinstance(error, AzureError | OSError):
            raise unavailable(f"{self._name}: {type(error).__name__}") from error
