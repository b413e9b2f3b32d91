"""The endpoint of a node: its address, and the fingerprint that proves its identity."""

from dataclasses import dataclass
from typing import Self

from workflows.contracts.lifecycles import DEVICE
from workflows.contracts.nodes import NodeAddress

PYTHONS = ("/usr/bin/python3", "python3")
"""The system's Python first; that of PATH may be a version manager's script, ten times slower."""


@dataclass(frozen=True)
class NodeEndpoint:
    """The endpoint of one node, for the transport."""

    host: str
    port: int
    user: str
    minion_id: str
    """`SHA256:…`, the fingerprint of the SSH host key."""
    root: str = ""
    """The agent's folder; empty: /var/lib/baseload for root, else ~/.baseload-node."""
    pythons: tuple[str, ...] = PYTHONS
    """The Pythons to try; the first that can run the agent is used, or the last if none can."""
    is_given: bool = False
    """Whether a person gave the address, or somebody outside states it, so that it must be in a
    network where nodes may be."""
    is_device: bool = False
    """Whether it is one of very many machines that hardly ever have anything to say."""
    has_own_key: bool = False
    """Whether the machine lets in a key of its own, and no other."""

    @classmethod
    def of(cls, address: NodeAddress) -> Self:
        """The endpoint of a node's address."""
        return cls(
            address.host,
            address.port,
            address.user,
            address.minion_id,
            address.root or "",
            is_given=address.is_stated or not address.leased,
            is_device=address.node_id.startswith(f"{DEVICE.prefix}-"),
            has_own_key=address.has_own_key,
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
