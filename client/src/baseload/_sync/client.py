# Written by client/generate.py: change _async/client.py instead.
"""The client: every operation of the API, and operations that need several requests."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import httpx

from baseload._sync.operations import Operations
from baseload._sync.transport import Transport
from baseload.calls import Call, Retries, segment
from baseload.configuration import load_configuration
from baseload.models import Event, Upload
from baseload.packing import pack_to_file
from baseload.unpacking import Unpacked, unpack_from_file

T_co = TypeVar("T_co", covariant=True)


class PageOf(Protocol[T_co]):
    """A page of a list, as the operations `list_…` return it."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def next(self) -> str | None: ...


class ListedBy(Protocol[T_co]):
    """An operation that returns a page of a list: one of `list_…`."""

    def __call__(self, *args: Any, **kwargs: Any) -> PageOf[T_co]: ...


class Client(Operations):
    """A client of one API for one account; close the client, or use it in a `with`.

    url, key: None: found as the `baseload` command finds them, see `load_configuration`.
    Raises: ConfigurationError, when a file with settings or the key cannot be read.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        account_id: str | None = None,
        retries: Retries | None = None,
        http: httpx.BaseTransport | None = None,
    ) -> None:
        configuration = load_configuration(url, account_id=account_id)
        if key is not None:
            configuration = replace(configuration, key=key)
        self.transport = Transport(configuration, retries=retries, http=http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def every(self, listed: ListedBy[T_co], **filters: Any) -> Generator[T_co]:
        """All items of a list, fetched page by page: `client.every(client.list_jobs)`."""
        after: str | None = None
        while True:
            page = listed(after=after, **filters)
            yield from page.items
            after = page.next
            if after is None:
                return

    def upload_folder(self, folder: Path) -> Upload:
        """Pack a folder, without the files that its `.baseloadignore` names, and upload it."""
        with pack_to_file(folder) as archive:
            return self.create_upload(archive.path)

    def fetch_output(self, job_id: str, to: Path) -> Unpacked:
        """Fetch a job's output and unpack it into a folder, which is created."""
        with unpack_from_file(to) as archive:
            call = Call("GET", f"/v1/jobs/{segment(job_id)}/output")
            self.transport.download(call, archive.path)
            return archive.unpack()

    def log_of(self, job_id: str, worker: int = 0) -> bytes:
        """The log of a worker until now."""
        call = Call("GET", f"/v1/jobs/{segment(job_id)}/logs", {"worker": worker})
        return (self.transport.send(call)).content

    def follow_log(self, job_id: str, worker: int = 0, offset: int = 0) -> Generator[str]:
        """The log of a worker from a byte on, as it grows until the job has ended."""
        query = {"worker": worker, "offset": offset, "follow": True}
        path = f"/v1/jobs/{segment(job_id)}/logs"
        for event in self.transport.follow(path, query):
            yield str(event.json()["text"])

    def device_log_of(self, device_id: str, lines: int = 1000) -> bytes:
        """The last lines of the log of what a device runs now."""
        call = Call("GET", f"/v1/devices/{segment(device_id)}/logs", {"lines": lines})
        return (self.transport.send(call)).content

    def follow_device_log(self, device_id: str, lines: int = 1000) -> Generator[str]:
        """The last lines of the log of what a device runs, and what it says until that ends.

        Raises: ApiError, also when the device is lost meanwhile.
        """
        path = f"/v1/devices/{segment(device_id)}/logs"
        for event in self.transport.follow(path, {"lines": lines, "follow": True}):
            yield str(event.json()["text"])

    def follow_events(
        self, noun: str | None = None, resource_id: str | None = None
    ) -> Generator[Event]:
        """Events as they happen: of one resource from its first event on, or of all from now on.

        noun: `jobs`, `nodes`, `regions` or `providers`; resource_id: the id of one of these.
        """
        path = "/v1/events" if noun is None else f"/v1/{noun}/{segment(resource_id or '')}/events"
        for event in self.transport.follow(path, {"follow": True}):
            yield Event.model_validate_json(event.data)
