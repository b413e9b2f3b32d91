"""Datasets, whose lifecycle models, checkpoints and volumes have too."""

from collections.abc import Iterable

from tests.simulation.life import Life
from tests.simulation.lifecycles.part import Part, asks, calls_fail
from tests.simulation.lifecycles.resources import settled
from tests.simulation.plan import At, Draft

ARTIFACT = "ArtifactLifecycle"
MOST = 4
"""How many datasets acts are aimed at."""


def _added(draft: Draft) -> None:
    """A dataset is added, and perhaps asked for its removal soon after, or later."""
    added = At(draft.some_time())
    draft.add(added, "ask", "add", "dataset")
    if draft.random.random() < 0.5:
        later = added.and_then(draft.random.choice((0.0, 0.05, 3.0, 60.0, 900.0)))
        draft.add(later, "ask", "remove", draft.a("dataset", MOST))


def _fails(draft: Draft) -> None:
    """One is added, and a call of its lifecycle goes wrong."""
    draft.add(At(draft.some_time()), "ask", "add", "dataset")
    calls_fail(ARTIFACT)(draft)


def _at_rest(life: Life) -> Iterable[str]:
    contents = life.world.contents()
    for dataset in life.rows.datasets():
        found = dataset.resource_id, dataset.status, dataset.status_reason
        yield from settled(life, "dataset", *found)
        is_stored = contents.get(dataset.resource_id, 0)
        if dataset.status == "archived" and is_stored:
            yield f"{dataset.resource_id} is archived, and {is_stored} parts of it are stored"
        if dataset.status == "ready" and not is_stored:
            yield f"{dataset.resource_id} is ready, and nothing of it is stored"
        if dataset.status == "failed" and not dataset.status_reason:
            yield f"{dataset.resource_id} has failed, and does not say why"
        was_removed = "remove" in life.requests_of(dataset.resource_id)
        # An engine that was restored may have lost the request, which the outbox has delivered.
        if was_removed and dataset.status != "archived" and not life.has_forgotten:
            yield f"{dataset.resource_id} was to be removed, and is {dataset.status}"


ARTIFACTS = Part(
    name="artifacts",
    workflows=(ARTIFACT,),
    drawers=(
        (2, _added),
        (2, _fails),
        (1, asks("dataset", lambda _: MOST, ARTIFACT, "remove", "retry")),
    ),
    at_rest=_at_rest,
)
