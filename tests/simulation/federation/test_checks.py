"""The checks of these lives see mistakes of the product: defects are planted, and are found."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulation.defects import FEDERATED, LIFECYCLE_OF_FEDERATED, Defect, planting
from tests.simulation.federation.life import play
from workers.registry import WORKFLOWS

SEEDS = {"a-withdrawn-consent-does-not-end-the-job": 1}
"""A seed that breaks with the defect; `test_lives.py` plays it without. The other ones are left to
the proof, because a life with real rows takes seconds."""


@contextmanager
def planted(defect: Defect) -> Iterator[tuple[type, ...]]:
    """All workflows, the lifecycle of federated jobs with a defect in it."""
    kept = sys.modules.pop(LIFECYCLE_OF_FEDERATED)
    try:
        with planting(defect):
            broken = importlib.import_module(LIFECYCLE_OF_FEDERATED).FederatedLifecycle
        others = (each for each in WORKFLOWS if each.__name__ != broken.__name__)
        yield (*others, broken)
    finally:
        sys.modules[LIFECYCLE_OF_FEDERATED] = kept


@pytest.mark.parametrize(
    "defect", [each for each in FEDERATED if each.name in SEEDS], ids=lambda defect: defect.name
)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    with planted(defect) as workflows:
        player = play(SEEDS[defect.name], workflows)
    assert any("consent was withdrawn" in found.what for found in player.life.violations)
