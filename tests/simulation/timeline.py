"""A life as a person reads it: who asked, what was answered, what was lost, what broke."""

from collections.abc import Iterator

from tests.simulation.life import Life
from tests.simulation.plan import Plan

MOST_LINES = 200


def story_of_plan(plan: Plan) -> Iterator[str]:
    """What was there, what people submitted and asked, and what went wrong, before it is played."""
    own = ", ".join("+".join(map(str, region)) + " GPUs" for region in plan.machines)
    yield f"seed {plan.seed}: own machines with {own}; " + (
        "a cloud" if plan.has_cloud else "no cloud"
    )
    if plan.has_own_site:
        yield "  a worker process of its own serves the first region's site"
    for number, job in enumerate(plan.jobs):
        yield f"  job/{number} {job}"
    for act in plan.acts:
        yield f"  {act}"


def timeline(life: Life, *, most: int = MOST_LINES) -> Iterator[str]:
    """The life in lines: seconds since the installation was ready, who, what.

    most: how many lines at the end are shown; what is left out is counted.
    """
    lines = list(_lines(life))
    if len(lines) > most:
        yield f"… {len(lines) - most} lines before"
    yield from lines[-most:]
    for violation in life.violations:
        yield f"VIOLATION at {violation.at_s:.0f} s: {violation.what}"


def _lines(life: Life) -> Iterator[str]:
    for at, who, what, details in life.engine.log.lines:
        more = "" if details is None else f" {details}"
        yield f"{at / 1e6 - life.began_s:10.1f}  {who:<34} {what}{more}"
