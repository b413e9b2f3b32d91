"""How talking to a node fails. Each says which node; the names are Temporal's failure types."""

# The names stand in workflows/contracts/errors.py as well, so they carry no suffix.
# ruff: noqa: N818


class TransportError(Exception):
    """Anything that went wrong between us and a node."""


class NodeUnreachable(TransportError):
    """No connection came to be, so nothing was done. Says nothing about the node's work."""

    def __init__(self, host: str, port: int, cause: str) -> None:
        super().__init__(f"node {host}:{port}: unreachable: {cause}")
        self.host = host
        self.port = port
        self.cause = cause


class HostKeyMismatch(TransportError):
    """Another machine answers than the one that was added; nothing was said to it."""

    def __init__(self, address: str, expected: str, found: str) -> None:
        super().__init__(f"node {address}: expected the host key {expected}, found {found}")
        self.expected = expected
        self.found = found


class LoginRefused(TransportError):
    """The machine is the right one and does not let the platform's key in."""


class OutcomeUnknown(TransportError):
    """The connection went while a command ran, or its time was up: it may have been done."""


class AgentRefused(TransportError):
    """The agent's own no: `code` is stable, `message` for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class AgentBroke(TransportError):
    """The agent gave no answer: no python3, no room for it, or a mistake in it."""
