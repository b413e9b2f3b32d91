"""Effects: every side effect of a workflow; `activities/` implements each effect by its name.

`effect.py` defines the typed stub, and each noun has a file of its own. `ALL` lists the effects
for the registry, the shape test and the failure tests.
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
