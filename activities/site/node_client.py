"""The client of a node: the agent's verbs, streams and files, with failures that workflows know.

None of the failures is marked as final here: which of them end an effect, and which are tried
again, is said by the effect's own stub (`find_node_again` tries again even after a wrong key).
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.temporal.heartbeats import set_details
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    AgentRefused,
    HostKeyMismatch,
    LoginRefused,
    NodeUnreachable,
    OutcomeUnknown,
    TransportError,
)
from activities.transport.ssh import NodeConnections, Source
from activities.transport.stream import NodeStream
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress

FAILURES: dict[type[TransportError], str] = {
    NodeUnreachable: errors.NODE_UNREACHABLE,
    LoginRefused: errors.LOGIN_REFUSED,
}
"""What each says about the node, where it says nothing about what was asked of it."""

WORK_REFUSALS = {
    "packages": "the packages cannot be installed: check the names and versions in "
    "environment.python_packages",
    "apt-needs-root": "apt packages need a node whose user is root: add it so, or leave out "
    "environment.apt_packages",
    "apt": "the apt packages cannot be installed: check the names in environment.apt_packages",
    "image": "the image cannot be had: check environment.image, and that the node can reach its "
    "registry",
    "disk-full": "there is no room on the node: free space on its disk, or ask for less in "
    "resources.disk_size_gb",
    "broken-archive": "the upload cannot be read: upload it again as tar.gz",
    "unsafe-archive": "the upload is not safe to unpack: pack the files again, with names and "
    "links that stay inside the archive",
    "archive-too-large": "the upload is too large: leave out what the job does not need",
    "hash-mismatch": "the upload has arrived damaged: upload it again",
}
"""The agent's refusals that only the job's owner can mend: what they mean, and how."""

PASSING = frozenset({"tree-alive", "start-failed", "not-removed", "unsettled"})
"""The agent's refusals that may be over by the next time it is asked."""

_open: dict[Path, NodeConnections] = {}


class NodeClient:
    """One node, reached over the connections of this process, of which every client is one user.

    Raises, in all that it does: ApplicationError, naming the node. Its type is NODE_UNREACHABLE,
    LOGIN_REFUSED or HOST_KEY_MISMATCH when nothing was done; OUTCOME_UNKNOWN when the connection or
    the time went, or when the agent's refusal may be over soon; WORK_REFUSED when the job's owner
    can mend what the agent refused; NODE_REFUSED when only the node's owner can.
    """

    def __init__(self, node: NodeAddress) -> None:
        self._node = node
        self._endpoint = NodeEndpoint.of(node)

    async def call(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        limit_s: float,
        broken: str = errors.OUTCOME_UNKNOWN,
    ) -> dict[str, Any]:
        """Do one verb of the agent and return its answer; its progress is the heartbeat's details.

        limit_s: below the activity's own limit, so that it is this that says what happened.
        broken: the failure's type when the agent ends without an answer.
        """
        with self._translated_errors(broken=broken):
            return await _connections().call(
                self._endpoint, verb, request, limit_s=limit_s, on_progress=set_details
            )

    async def feed(
        self, verb: str, request: dict[str, Any], source: Source, *, limit_s: float
    ) -> None:
        """Do a verb that takes bytes, such as `put_input`."""
        with self._translated_errors():
            await _connections().feed(self._endpoint, verb, request, source, limit_s=limit_s)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        eof: bool = True,
        loss: str = errors.OUTCOME_UNKNOWN,
    ) -> AsyncGenerator[NodeStream]:
        """Do a verb that answers with bytes, for as long as the block runs.

        Failures of the transport are translated wherever in the block they are raised.
        eof: nothing more will be said to the verb. `watch` takes further lines and needs False.
        loss: the failure's type when the connection goes in the middle.
        """
        with self._translated_errors(loss=loss):
            async with await _connections().stream(
                self._endpoint, verb, request, eof=eof
            ) as stream:
                yield stream

    async def put_file(
        self,
        source: Source,
        remote_path: str,
        *,
        limit_s: float,
        on_bytes: Callable[[int], None],
    ) -> str:
        """Put a file on the node, whole or not at all, and return its path there.

        remote_path: relative ones are under the agent's root.
        on_bytes: hears how many bytes have been sent.
        """
        with self._translated_errors():
            return await _connections().put_file(
                self._endpoint, source, remote_path, limit_s=limit_s, on_bytes=on_bytes
            )

    @contextlib.contextmanager
    def _translated_errors(
        self, *, loss: str = errors.OUTCOME_UNKNOWN, broken: str = errors.OUTCOME_UNKNOWN
    ) -> Generator[None]:
        """Turn a failure of the transport inside the block into the one that workflows know."""
        node_id = self._node.node_id
        try:
            yield
        except AgentRefused as refusal:
            _refuse(node_id, refusal)
        except HostKeyMismatch as error:
            raise ApplicationError(
                f"{node_id}: {error}: another machine answers at this address, or the machine"
                " was installed anew; nothing was sent to it",
                {"expected": error.expected, "found": error.found},
                type=errors.HOST_KEY_MISMATCH,
            ) from error
        except AgentBroke as error:
            raise ApplicationError(
                f"{node_id}: {error} (the machine needs python3 of at least 3.8, and room for it)",
                type=broken,
            ) from error
        except TransportError as error:
            kind = loss if isinstance(error, OutcomeUnknown) else FAILURES[type(error)]
            raise ApplicationError(f"{node_id}: {error}", type=kind) from error


async def close_connections() -> None:
    """Close every connection; what runs on the nodes runs on. Called once, before leaving."""
    while _open:
        await _open.popitem()[1].close()


def _connections() -> NodeConnections:
    """The connections of this process, with the platform's key; for its one event loop."""
    key = settings().platform_key_path
    if key not in _open:
        _open[key] = NodeConnections(key)
    return _open[key]


def _refuse(node_id: str, refusal: AgentRefused) -> NoReturn:
    """Raise the failure that the agent's no means."""
    advice = WORK_REFUSALS.get(refusal.code)
    if advice is not None:
        message = f"{advice}. {node_id} says: {refusal.message.strip()}"
        kind = errors.WORK_REFUSED
    else:
        message = f"{node_id}: {refusal.message.strip()}"
        kind = errors.OUTCOME_UNKNOWN if refusal.code in PASSING else errors.NODE_REFUSED
    raise ApplicationError(message, {"code": refusal.code}, type=kind) from refusal
