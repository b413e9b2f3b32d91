"""The checks of these lives see mistakes of the product: defects are planted, and are found."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulation.defects import EDGE, Defect, planting
from tests.simulation.edge.life import LIFECYCLES, EdgeLife

MOST_SEEDS = 100
PARTS = "workflows.devices"
"""The package whose modules have these defects."""


@contextmanager
def planted(defect: Defect) -> Iterator[tuple[type, ...]]:
    """The lifecycles with a defect in them, beside those that the process has imported."""
    kept = {name: module for name, module in sys.modules.items() if name.startswith(PARTS)}
    for name in kept:
        del sys.modules[name]
    try:
        with planting(defect):
            yield tuple(
                getattr(importlib.import_module(one.__module__), one.__name__) for one in LIFECYCLES
            )
    finally:
        for name in [name for name in sys.modules if name.startswith(PARTS)]:
            del sys.modules[name]
        sys.modules.update(kept)


@pytest.mark.parametrize("defect", EDGE, ids=lambda defect: defect.name)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    with planted(defect) as lifecycles:
        assert all(one not in LIFECYCLES for one in lifecycles)
        found = next((s for s in range(MOST_SEEDS) if EdgeLife(s, lifecycles).play()), None)
    assert found is not None, f"no life of {MOST_SEEDS} seeds has shown it"
    assert EdgeLife(found).play() == [], "its seed passes without the defect"
