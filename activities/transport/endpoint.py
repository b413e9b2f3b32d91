"""Where a node is, and what proves that it is that node."""

from dataclasses import dataclass
from typing import Self

from workflows.contracts.nodes import NodeAddress

PYTHONS = ("/usr/bin/python3", "python3")
"""The system's own first: what PATH has may be a version manager's script, ten times as slow."""


@dataclass(frozen=True)
class NodeEndpoint:
    """One machine as the transport knows it."""

    host: str
    port: int
    user: str
    minion_id: str
    """`SHA256:…`, the fingerprint of the SSH host key."""
    root: str = ""
    """The agent's folder; empty: /var/lib/baseload for root, else ~/.baseload-node."""
    pythons: tuple[str, ...] = PYTHONS
    """The first of them that the agent can run with is taken, the last one where none is."""

    @classmethod
    def of(cls, address: NodeAddress) -> Self:
        """The endpoint of a node's address."""
        return cls(address.host, address.port, address.user, address.minion_id, address.root or "")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
