"""The list of the faults, by their names."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.edge.stage import Edge

Fault = Callable[[Edge, str, random.Random], None]
FAULTS: dict[str, Fault] = {}


def fault(act: Fault) -> Fault:
    """Put a fault onto the list, under the name of its function."""
    return add(act.__name__.replace("_", "-"), act)


def add(name: str, act: Fault) -> Fault:
    """Put a fault onto the list under a name."""
    FAULTS[name] = act
    return act
