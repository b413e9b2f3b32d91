"""The activities that worker processes serve, with one file for each task queue.

Activities of `main` and `planning` read and write rows and never reach a node. Activities of the
cloud queues call the API of a provider, and those of `notifications` listen to one. Activities of
`site` reach nodes and never open the database.

To add an activity, write its effect in `workflows/effects/` and its function, and name it in the
file of its task queue; `site` serves all activities that its modules define.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

Activity = Callable[..., Any]


def activities_in(*modules: ModuleType) -> tuple[Activity, ...]:
    """All activities that these modules define themselves, in the order of the source."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if hasattr(value, "__temporal_activity_definition") and value.__module__ == module.__name__
    )
