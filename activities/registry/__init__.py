"""Which activities there are: a file for each queue that serves them.

`main` and `planning` read and write rows and never touch a node; `notifications` listens to
providers, for as long as they are there; `site` touches nodes and never opens the database. To add
an activity: its stub in `workflows/effects/`, its function, and its name in the file of its queue;
all that the modules of `site` define is served by itself.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

Activity = Callable[..., Any]


def activities_in(*modules: ModuleType) -> tuple[Activity, ...]:
    """Every activity that these modules define themselves, in the order of the text."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if hasattr(value, "__temporal_activity_definition") and value.__module__ == module.__name__
    )
