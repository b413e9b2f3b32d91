"""The process's connections to nodes, and what a failure on the way means to a workflow.

None of the failures is marked as final here: which of them end an effect, and which are tried
again, is said by the effect's own stub (`find_node_again` tries again even after a wrong key).
"""

import contextlib
from collections.abc import Generator
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
from activities.transport.ssh import NodeConnections
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


def connections() -> NodeConnections:
    """The connections of this process, with the platform's key; for its one event loop."""
    key = settings().platform_key_path
    if key not in _open:
        _open[key] = NodeConnections(key)
    return _open[key]


async def close_connections() -> None:
    """Close every connection; what runs on the nodes runs on. Called once, before leaving."""
    while _open:
        await _open.popitem()[1].close()


def endpoint(node: NodeAddress) -> NodeEndpoint:
    """The node as the transport knows it."""
    return NodeEndpoint.of(node)


@contextlib.contextmanager
def translated_errors(
    node: NodeAddress,
    *,
    loss: str = errors.OUTCOME_UNKNOWN,
    broken: str = errors.OUTCOME_UNKNOWN,
) -> Generator[None]:
    """Turn what goes wrong inside into the failure that workflows know, naming the node.

    loss: what a connection that goes in the middle is called; broken: an agent without an answer.
    """
    try:
        yield
    except AgentRefused as refusal:
        refuse(node, refusal)
    except HostKeyMismatch as error:
        raise ApplicationError(
            f"{node.node_id}: {error}: another machine answers at this address, or the machine"
            " was installed anew; nothing was sent to it",
            {"expected": error.expected, "found": error.found},
            type=errors.HOST_KEY_MISMATCH,
        ) from error
    except AgentBroke as error:
        raise ApplicationError(
            f"{node.node_id}: {error} (the machine needs python3 of at least 3.8, and room for it)",
            type=broken,
        ) from error
    except TransportError as error:
        kind = loss if isinstance(error, OutcomeUnknown) else FAILURES[type(error)]
        raise ApplicationError(f"{node.node_id}: {error}", type=kind) from error


def refuse(node: NodeAddress, refusal: AgentRefused) -> NoReturn:
    """Raise the failure that the agent's no means."""
    advice = WORK_REFUSALS.get(refusal.code)
    if advice is not None:
        message = f"{advice}. {node.node_id} says: {refusal.message.strip()}"
        kind = errors.WORK_REFUSED
    else:
        message = f"{node.node_id}: {refusal.message.strip()}"
        kind = errors.OUTCOME_UNKNOWN if refusal.code in PASSING else errors.NODE_REFUSED
    raise ApplicationError(message, {"code": refusal.code}, type=kind) from refusal


async def ask(
    node: NodeAddress,
    verb: str,
    request: dict[str, Any],
    *,
    limit_s: float,
    broken: str = errors.OUTCOME_UNKNOWN,
) -> dict[str, Any]:
    """The agent's answer.

    limit_s: below the activity's own limit, so that it is this that says what happened.
    broken: what an agent without an answer means.
    Raises: ApplicationError, see `connections.told`.
    """
    with translated_errors(node, broken=broken):
        return await connections().call(
            endpoint(node), verb, request, limit_s=limit_s, on_progress=set_details
        )
