"""The failures of the transport to a node. Each message names the node."""

# The names are failure types in workflows/contracts/errors.py as well, so they have no suffix.
# ruff: noqa: N818


class TransportError(Exception):
    """A failure between us and a node; the base of all others."""


class NodeUnreachable(TransportError):
    """No connection could be opened, so nothing was done. The node's runs may well go on.

    The message never names the cause: whoever gives an address must not learn what is there.
    """

    def __init__(self, host: str, port: int, cause: str) -> None:
        super().__init__(f"node {host}:{port}: cannot be reached")
        self.host = host
        self.port = port
        self.cause = cause


class HostKeyMismatch(TransportError):
    """The answering machine is not the node that was added; nothing was sent to it.

    The message never names the key that was found, which may be that of a stranger's machine.
    """

    def __init__(self, address: str, expected: str, found: str) -> None:
        super().__init__(f"node {address}: cannot be reached")
        self.expected = expected
        self.found = found


class LoginRefused(TransportError):
    """The machine is the right one, but does not accept our key."""


class OutcomeUnknown(TransportError):
    """The connection was lost or the timeout passed while a command ran: it may have succeeded."""


class AgentRefused(TransportError):
    """A verb that streams bytes ended as it does with a refusal.

    said: the last line of its stderr, which says why; nobody has read it yet.
    """

    def __init__(self, words: str, said: bytes) -> None:
        super().__init__(f"{words}: exit status 3: {said.decode(errors='replace')}")
        self.said = said


class AgentBroke(TransportError):
    """The agent gave no answer: the node lacks python3 or disk space, or the agent has a bug."""


class ProtocolViolation(TransportError):
    """The node says more than our agent ever does; the rest was not read."""

    def __init__(self, field: str, rule: str, found: str) -> None:
        super().__init__(f"{field}: {rule}, found {found}")
        self.field = field
        self.rule = rule
        self.found = found
