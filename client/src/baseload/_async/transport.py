"""Requests to the API, retried where that is safe, and streams, resumed where they broke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from baseload.calls import (
    CHUNK_BYTES,
    RETRIED_STATUSES,
    Call,
    Retries,
    problem_of,
    refusal_of,
    seconds_asked,
)
from baseload.configuration import Configuration
from baseload.errors import ApiError, UnreachableError
from baseload.server_events import END, FAILED, EventReader, ServerEvent

ANSWER_LIMIT_S = 30.0
STREAM_SILENCE_S = 60.0


class AsyncTransport:
    """One pool of connections to one API. `http` replaces the network, for tests."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        retries: Retries | None = None,
        http: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.configuration = configuration
        self._retries = retries or Retries()
        self._http = httpx.AsyncClient(
            base_url=configuration.url,
            headers=configuration.headers,
            timeout=httpx.Timeout(ANSWER_LIMIT_S, connect=5.0),
            trust_env=not configuration.is_loopback,
            transport=http,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call) -> httpx.Response:
        """Send a request and return its answer, with the body read.

        Raises: ApiError, when the API refuses; UnreachableError, when the API does not answer.
        """
        response = await self._answer(call, call.prepared_headers())
        try:
            await response.aread()
        except httpx.TransportError as cause:
            raise self._unreachable(cause) from cause
        finally:
            await response.aclose()
        return response

    async def json(self, call: Call) -> Any:
        """The answer's JSON; None where the answer has no body."""
        response = await self.send(call)
        return response.json() if response.content else None

    async def pages(
        self, path: str, query: Mapping[str, Any] | None = None, limit: int | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """The items of a list, newest first, at most `limit`, fetched page by page."""
        asked = dict(query or {})
        taken = 0
        while True:
            left = None if limit is None else limit - taken
            asked["limit"] = 100 if left is None else min(100, left)
            page = await self.json(Call("GET", path, asked))
            for item in page["items"]:
                yield item
            taken += len(page["items"])
            asked["after"] = page.get("next")
            if not asked["after"] or (limit is not None and taken >= limit):
                return

    async def download(self, call: Call, to: Path) -> int:
        """Write the answer's body to a file, and return its length in bytes.

        A retry writes the file again from its start.
        Raises: UnreachableError, when the last attempt breaks off.
        """
        for attempt in range(1, self._retries.attempts + 1):
            response = await self._answer(call, call.prepared_headers())
            try:
                with to.open("wb") as file:
                    async for piece in response.aiter_bytes(CHUNK_BYTES):
                        file.write(piece)
                    return file.tell()
            except httpx.TransportError as cause:
                if attempt == self._retries.attempts:
                    raise self._unreachable(cause) from cause
            finally:
                await response.aclose()
            await asyncio.sleep(self._retries.delay_s(attempt))
        raise AssertionError("attempts is at least 1")

    async def chunks(self, call: Call) -> AsyncGenerator[bytes]:
        """The answer's body in pieces. Raises: UnreachableError, when the connection breaks."""
        response = await self._answer(call, call.prepared_headers())
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except httpx.TransportError as cause:
            raise self._unreachable(cause) from cause
        finally:
            await response.aclose()

    async def follow(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[ServerEvent]:
        """The events of a stream until it ends; a broken connection is resumed where it broke.

        Raises: ApiError, when the API says that what is followed was lost; UnreachableError, when
        the stream cannot be resumed within `stream_limit_s`.
        """
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        call = Call("GET", path, query or {}, headers=headers)
        alive_at, attempt = time.monotonic(), 0
        while True:
            cause: Exception | None = None
            try:
                async with aclosing(self._connection(call)) as events:
                    async for event in events:
                        alive_at, attempt = time.monotonic(), 0
                        if event is None:
                            continue
                        if event.event == END:
                            return
                        if event.event == FAILED:
                            raise refusal_of(event.data)
                        if event.id is not None:
                            headers["Last-Event-ID"] = event.id
                        yield event
            except (UnreachableError, httpx.TransportError) as error:
                cause = error
            attempt += 1
            if time.monotonic() - alive_at > self._retries.stream_limit_s:
                raise self._unreachable(cause) from cause
            await asyncio.sleep(self._retries.delay_s(attempt))

    async def _connection(self, call: Call) -> AsyncGenerator[ServerEvent | None]:
        """The events of one connection; None for bytes that complete no event."""
        response = await self._answer(call, call.prepared_headers(), silence_s=STREAM_SILENCE_S)
        reader = EventReader()
        try:
            if response.status_code == httpx.codes.NO_CONTENT:
                yield ServerEvent("", END)
            async for piece in response.aiter_bytes():
                events = reader.feed(piece)
                for event in events:
                    yield event
                if not events:
                    yield None
        finally:
            await response.aclose()

    async def _answer(
        self, call: Call, headers: Mapping[str, str], silence_s: float = ANSWER_LIMIT_S
    ) -> httpx.Response:
        """An answer that is not an error, whose body is not read yet."""
        for attempt in range(1, self._retries.attempts + 1):
            last = attempt == self._retries.attempts
            delay_s = self._retries.delay_s(attempt)
            try:
                response = await self._attempt(call, headers, silence_s)
            except httpx.TransportError as cause:
                if last or not call.is_repeatable:
                    raise self._unreachable(cause) from cause
            else:
                if response.is_success:
                    return response
                if last or response.status_code not in RETRIED_STATUSES:
                    raise await self._refusal(response)
                asked_s = seconds_asked(response.headers.get("Retry-After"))
                delay_s = self._retries.delay_s(attempt, asked_s)
                await response.aclose()
            await asyncio.sleep(delay_s)
        raise AssertionError("attempts is at least 1")

    async def _attempt(
        self, call: Call, headers: Mapping[str, str], silence_s: float
    ) -> httpx.Response:
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.parameters,
            json=call.body,
            content=call.content if call.file is None else _pieces(call.file),
            headers={**headers, **_length(call)},
            timeout=httpx.Timeout(silence_s, connect=5.0),
        )
        return await self._http.send(request, stream=True)

    async def _refusal(self, response: httpx.Response) -> ApiError:
        try:
            await response.aread()
            return ApiError(response.status_code, problem_of(response.text))
        except httpx.TransportError as cause:
            raise self._unreachable(cause) from cause
        finally:
            await response.aclose()

    def _unreachable(self, cause: Exception | None) -> UnreachableError:
        if isinstance(cause, UnreachableError):
            return cause
        reason = str(cause) or type(cause).__name__ if cause else "the connection kept closing"
        return UnreachableError(f"cannot reach the API at {self.configuration.url}: {reason}")


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _length(call: Call) -> dict[str, str]:
    return {} if call.file is None else {"Content-Length": str(call.file.stat().st_size)}
