"""The names of runs on a node: a run's id, and a tag that only the region's sites can make.

A node learns the names of the runs that were placed on it, and cannot make the name of another.
So what a node says of a run whose name has no tag, or that of another node, is about no run of it.
"""

import base64
import hashlib
import hmac

from activities.secrets.sealing import run_name_key
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress

_TAG_BYTES = 10


class RunNames:
    """The names of runs on one node.

    Raises: MasterKeyError, when this process has no key of the node's region.
    """

    def __init__(self, node: NodeAddress) -> None:
        self._node_id = node.node_id
        self._key = run_name_key(node.region_id)

    def of(self, run_id: str) -> str:
        """The name of a run that was placed on the node."""
        return f"{run_id}-{self._tag(run_id)}"

    def read(self, name: str) -> str | None:
        """The run id of a name that the node says; None: no such run was placed on the node."""
        run_id, _, tag = name.rpartition("-")
        try:
            parse_run_id(run_id)
        except ValueError:
            return None
        is_right = hmac.compare_digest(tag.encode(), self._tag(run_id).encode())
        return run_id if is_right else None

    def _tag(self, run_id: str) -> str:
        about = f"{run_id}\0{self._node_id}".encode()
        digest = hmac.digest(self._key, about, hashlib.sha256)
        return base64.b32hexencode(digest[:_TAG_BYTES]).decode().lower()
