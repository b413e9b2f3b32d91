"""Datastores: added while others work, away for a while, removed by people or with their region."""

from collections.abc import Iterable

from tests.simulation.life import Life
from tests.simulation.lifecycles.part import Part, asks, calls_fail, goes_wrong, together
from tests.simulation.lifecycles.resources import settled
from tests.simulation.plan import At, Draft

DATASTORE = "DatastoreLifecycle"


def _added(draft: Draft) -> None:
    """Once the nodes of the first region may be active: before that it is refused."""
    draft.add(At(draft.some_time()), "ask", "add", "datastore")


def _at_rest(life: Life) -> Iterable[str]:
    for one in life.rows.datastores():
        yield from settled(life, "datastore", one.resource_id, one.status, one.status_reason)
        if one.status == "archived" and life.rows.has_password(one.resource_id):
            yield f"{one.resource_id} is archived, and its password is kept"


DATASTORES = Part(
    name="datastores",
    workflows=(DATASTORE,),
    drawers=(
        (2, _added),
        (1, calls_fail(DATASTORE)),
        (1, asks("datastore", lambda _: 2, DATASTORE, "remove", "refresh")),
        (
            1,
            together(
                goes_wrong("datastore", lambda _: 2, DATASTORE, "share_away"),
                asks("datastore", lambda _: 2, DATASTORE, "remove", "refresh"),
            ),
        ),
    ),
    at_rest=_at_rest,
)
