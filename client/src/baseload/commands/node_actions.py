# Written by client/generate.py: change api/openapi.json instead.
"""The actions of nodes, as the API describes them."""

from __future__ import annotations

from typing import NamedTuple


class NodeAction(NamedTuple):
    """An action of a node, `POST /v1/nodes/{id}/{name}`, and its command.

    status: of the node after the action, which `--wait` waits for; None: there is no wait.
    """

    name: str
    help: str
    takes_force: bool
    status: str | None


NODE_ACTIONS = (
    NodeAction(
        "activate", "Activate a node in maintenance, so that it takes jobs.", False, "active"
    ),
    NodeAction(
        "maintenance",
        "Put a node in maintenance: it takes no new jobs, and its running jobs go on.",
        False,
        "maintenance",
    ),
    NodeAction(
        "reboot",
        "Reboot a node's machine; a node with jobs only with `force`, which ends the jobs.",
        True,
        None,
    ),
)
