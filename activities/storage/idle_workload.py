"""The idle workload of a node as its site gets it: sealed, because it may hold a password."""

import base64

from pydantic import Field

from activities.secrets.sealing import site_box
from workflows.contracts.base import Contract


class IdleWorkload(Contract):
    """The command or image that an account's nodes run while they are idle."""

    image: str | None = None
    """The container image; None: the command runs on the machine itself."""
    command: str = Field(repr=False)
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """Its variables, and `BASELOAD_WALLET_<COIN>` for each wallet of the account."""


def seal_idle_workload(workload: IdleWorkload, region_id: str, node_id: str) -> str:
    """The workload, sealed for the region's site and for this node. Raises: MasterKeyError."""
    content = workload.model_dump_json().encode()
    return base64.b64encode(site_box(region_id).seal(content, _name(node_id))).decode()


def open_idle_workload(sealed: str, region_id: str, node_id: str) -> IdleWorkload:
    """The workload of this node. Raises: SealBrokenError, MasterKeyError."""
    content = site_box(region_id).open(base64.b64decode(sealed), _name(node_id))
    return IdleWorkload.model_validate_json(content)


def _name(node_id: str) -> bytes:
    return f"idle-workload/{node_id}".encode()
