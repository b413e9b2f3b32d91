"""Open connections to nodes: shared, counted, replaced when broken, closed when idle."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import asyncssh

from activities.transport.endpoint import NodeEndpoint

CHANNELS = 8
"""The limit of channels per connection; OpenSSH refuses the eleventh (MaxSessions)."""
IDLE_S = 300.0
REFUSED_S = 60.0


@dataclass
class Link:
    """One connection to one node, on which the agent is installed."""

    connection: asyncssh.SSHClientConnection
    root: str
    archive: str
    """The agent's path on the node."""
    python: str
    """The Python that runs the agent on the node."""
    channels: int = 0
    most: int = CHANNELS
    is_gone: bool = False
    most_until: float = 0.0
    """Until when `most` is the number of channels that the server allowed when it refused one. A
    refusal may be temporary."""
    idle: asyncio.TimerHandle | None = None

    def is_broken(self) -> bool:
        """Whether the connection is closed."""
        return self.is_gone or self.connection.is_closed()

    def has_room(self) -> bool:
        """Whether one more channel may be opened."""
        if time.monotonic() > self.most_until:
            self.most = CHANNELS
        return self.channels < self.most

    def note_refusal(self, *, is_gone: bool) -> None:
        """Lower the limit of channels for a while, after the server refused one."""
        self.is_gone = is_gone
        self.most = max(1, self.channels - 1)
        self.most_until = time.monotonic() + REFUSED_S


@dataclass
class _Node:
    links: list[Link] = field(default_factory=list)
    opening: asyncio.Task[Link] | None = None


class LinkPool:
    """The pool of links by node; `open_link` makes a link, or raises the errors of connecting."""

    def __init__(
        self,
        open_link: Callable[[NodeEndpoint], Awaitable[Link]],
        idle_s: float = IDLE_S,
    ) -> None:
        self._open_link = open_link
        self._idle_s = idle_s
        self._nodes: dict[NodeEndpoint, _Node] = {}

    @contextlib.asynccontextmanager
    async def link(self, endpoint: NodeEndpoint) -> AsyncIterator[Link]:
        """A link with a free channel, which counts as used until the block ends."""
        link = await self._take(endpoint)
        try:
            yield link
        finally:
            self._release(endpoint, link)

    def hold(self, endpoint: NodeEndpoint, link: Link) -> Callable[[], None]:
        """Count one more channel as used, until the returned function is called."""
        link.channels += 1
        held = [link]

        def release() -> None:
            if held:
                self._release(endpoint, held.pop())

        return release

    async def close(self) -> None:
        """Close every connection."""
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            if node.opening is not None:
                node.opening.cancel()
            for link in node.links:
                if link.idle is not None:
                    link.idle.cancel()
                link.connection.abort()
        for node in nodes.values():
            for link in node.links:
                await link.connection.wait_closed()

    async def _take(self, endpoint: NodeEndpoint) -> Link:
        while True:
            node = self._nodes.setdefault(endpoint, _Node())
            node.links = [link for link in node.links if not link.is_broken()]
            for link in node.links:
                if link.has_room():
                    link.channels += 1
                    if link.idle is not None:
                        link.idle.cancel()
                        link.idle = None
                    return link
            # All waiting callers share one attempt and its failure; none of them can cancel it.
            if node.opening is None:
                node.opening = asyncio.ensure_future(self._open(endpoint, node))
                node.opening.add_done_callback(_retrieve)
            await asyncio.shield(node.opening)

    async def _open(self, endpoint: NodeEndpoint, node: _Node) -> Link:
        try:
            link = await self._open_link(endpoint)
            node.links.append(link)
            self._close_when_idle(endpoint, link)
            return link
        finally:
            node.opening = None

    def _release(self, endpoint: NodeEndpoint, link: Link) -> None:
        link.channels -= 1
        if link.channels == 0:
            self._close_when_idle(endpoint, link)

    def _close_when_idle(self, endpoint: NodeEndpoint, link: Link) -> None:
        loop = asyncio.get_running_loop()
        link.idle = loop.call_later(self._idle_s, self._close_if_idle, endpoint, link)

    def _close_if_idle(self, endpoint: NodeEndpoint, link: Link) -> None:
        if link.channels:
            return
        link.connection.close()
        node = self._nodes.get(endpoint)
        if node is not None and link in node.links:
            node.links.remove(link)
        if node is not None and not node.links and node.opening is None:
            del self._nodes[endpoint]


def _retrieve(opening: asyncio.Task[Link]) -> None:
    """Retrieve the failure when no caller waits any more; else asyncio logs it at exit."""
    if not opening.cancelled():
        opening.exception()
