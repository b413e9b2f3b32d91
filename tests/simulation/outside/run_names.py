"""The names of runs on a node: the run's id, and a tag of the node that nobody else can make.

As activities/site/run_names.py, with the node's id for the tag: what another node, or another
control plane, has left on a machine has another name.
"""


def name_of(run_id: str, node_id: str) -> str:
    """The name of a run that was placed on the node."""
    return f"{run_id}@{node_id}"


def read_name(name: str, node_id: str) -> str | None:
    """The run id of a name that the node says; None: no such run was placed on the node."""
    run_id, _, tag = name.partition("@")
    return run_id if tag == node_id else None
