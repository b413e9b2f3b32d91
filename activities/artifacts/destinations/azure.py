"""Containers at Azure, to which the files of an output are sent as block blobs.

Azure's own library, which checks each request by its MD5. It is imported when a delivery needs it.
What the store says is not repeated: its code alone, because its words may hold what was sent.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobBlock
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.sending import (
    OutputFile,
    Sending,
    read_whole,
    send_each,
    shown_place,
)
from activities.artifacts.sources.azure import container_client
from activities.artifacts.sources.tar_streams import refused, unavailable
from workflows.contracts.deliveries import AzureDestination

BLOCK_BYTES = 8 << 20
"""The blocks of larger files; what is no larger is sent at once."""
MOST_BLOCKS = 50_000
_TRY_AGAIN = ("InvalidBlockList", "Md5Mismatch", "OperationTimedOut", "ServerBusy")
"""What is refused of one attempt and taken of another. The blocks of one that a later attempt has
followed are gone when that one has completed the blob."""
_CODE = re.compile(r"[A-Za-z0-9]{1,60}")


def deliver_container(
    destination: AzureDestination, key: Mapping[str, str], sending: Sending
) -> str:
    """Send the files of an output to a container, and say where they are. Blocking.

    key: the fields of a third-party key.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    container = _Container(destination, key)
    send_each(sending, destination.prefix, container.put)
    root = f"azure://{destination.account}/{destination.container}"
    return shown_place(root, destination.prefix)


class _Container:
    """A container that files are sent to."""

    def __init__(self, destination: AzureDestination, key: Mapping[str, str]) -> None:
        self._client = container_client(destination.account, destination.container, key)
        self._name = f"{destination.account}/{destination.container}"

    def put(self, name: str, file: OutputFile, beat: Callable[[], None]) -> None:
        """Store a file. Raises: ApplicationError."""
        blob = self._client.get_blob_client(name)
        if file.size_bytes <= BLOCK_BYTES:
            content = read_whole(file, file.size_bytes)
            with self._saying(name):
                blob.upload_blob(content, overwrite=True, validate_content=True)
            return
        most, left = max(BLOCK_BYTES, -(-file.size_bytes // MOST_BLOCKS)), file.size_bytes
        blocks: list[BlobBlock] = []
        while left:
            content = read_whole(file, min(most, left))
            left -= len(content)
            block = base64.b64encode(f"{len(blocks):08}".encode()).decode()
            with self._saying(name):
                blob.stage_block(block, content, validate_content=True)
            blocks.append(BlobBlock(block))
            beat()
        with self._saying(name):
            blob.commit_block_list(blocks)

    @contextmanager
    def _saying(self, name: str) -> Iterator[None]:
        """Turn what the library raises into an ApplicationError without the store's words."""
        try:
            yield
        except (AzureError, OSError) as error:
            raise _failure(f"{self._name}/{name[:200]}", error) from None


def _failure(where: str, error: Exception) -> ApplicationError:
    status = (error.status_code or 0) if isinstance(error, HttpResponseError) else 0
    code = str(getattr(error, "error_code", None) or "")
    shown = code if _CODE.fullmatch(code) else str(status)
    if code in _TRY_AGAIN or status in (408, 429) or not 300 <= status < 500:
        return unavailable(f"{where}: {shown if status else type(error).__name__}")
    if status == 404:
        return refused(f"{where}: there is no such container ({shown})")
    if status in (401, 403):
        return refused(f"{where}: the store refuses the key, or what it may do ({shown})")
    return refused(f"{where}: the store refuses it ({shown})")
