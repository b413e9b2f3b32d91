"""Every side effect that a workflow may ask for; `activities/` implements each by its name.

`effect.py` is the typed stub, one more file for each noun. `ALL` lists them for the registry,
the shape test and the failure tests.
"""

from typing import Any

from workflows.effects import (
    billing,
    jobs,
    leases,
    lifecycles,
    machines,
    nodes,
    placement,
    providers,
    reconciliation,
    regions,
)
from workflows.effects.effect import Effect

ALL: tuple[Effect[Any, Any], ...] = tuple(
    value
    for module in (
        billing,
        jobs,
        leases,
        lifecycles,
        machines,
        nodes,
        placement,
        providers,
        reconciliation,
        regions,
    )
    for value in vars(module).values()
    if isinstance(value, Effect)
)
