"""The failures of effects on nodes, as activities/site/node_client.py words them."""

from temporalio.exceptions import ApplicationError

from activities.site.node_client import PASSING, WORK_REFUSALS
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress


def unreachable(node: NodeAddress) -> ApplicationError:
    return ApplicationError(_cannot_be_reached(node), type=errors.NODE_UNREACHABLE)


def other_host_key(node: NodeAddress) -> ApplicationError:
    return ApplicationError(
        _cannot_be_reached(node), {"expected": node.minion_id}, type=errors.HOST_KEY_MISMATCH
    )


def login_refused(node: NodeAddress) -> ApplicationError:
    return ApplicationError(
        f"{node.node_id}: node {node.host}:{node.port}: the login as {node.user} was refused",
        type=errors.LOGIN_REFUSED,
    )


def protocol_violation(node: NodeAddress) -> ApplicationError:
    return ApplicationError(
        f"{node.node_id}: status: boot_id: has at most 100 characters, found 5000",
        type=errors.PROTOCOL_VIOLATION,
    )


def lost(node_id: str, host: str, kind: str) -> ApplicationError:
    """The connection was lost while an effect used it."""
    return ApplicationError(f"{node_id}: node {host}: the connection was lost", type=kind)


def refused(node_id: str, code: str, message: str) -> ApplicationError:
    """The agent's refusal, as `_refused` there translates it.

    A refusal that only the job's owner can mend is WORK_REFUSED; one that a retry may overcome is
    OUTCOME_UNKNOWN; any other one is NODE_REFUSED.
    """
    kind = errors.WORK_REFUSED if code in WORK_REFUSALS else errors.NODE_REFUSED
    kind = errors.OUTCOME_UNKNOWN if code in PASSING else kind
    return ApplicationError(f"{node_id}: {message}", {"code": code}, type=kind)


def store_away() -> ApplicationError:
    """What Temporal makes of the OSError of an object store that does not answer."""
    return ApplicationError("the object store does not answer", type="OSError")


def not_found(message: str) -> ApplicationError:
    return ApplicationError(message, type=errors.NOT_FOUND)


def _cannot_be_reached(node: NodeAddress) -> str:
    return (
        f"{node.node_id}: node {node.host}:{node.port}: cannot be reached: no machine with the "
        f"host key {node.minion_id} answers there"
    )
