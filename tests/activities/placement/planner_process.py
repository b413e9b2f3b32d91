"""A planner in a process of its own (`python -m` this module), until nothing waits."""

import sys

from sqlmodel import col, select

from activities.db.session import database
from activities.db.tables import Job
from activities.placement.planning import plan_placements
from activities.placement.refusals import refusals_of_jobs
from workflows.contracts.statuses import JobStatus
from workflows.effects.placement import PlanPlacements


def main() -> None:
    """At a word from outside, rounds of few jobs each; then the number of jobs placed here."""
    placed = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    while _anything_waits():
        done = plan_placements(PlanPlacements(limit=2)).placed
        placed += done
        if done == 0 and not _anything_fits():
            break
    sys.stdout.write(f"{placed}\n")


def _anything_waits() -> bool:
    with database().read() as session:
        waiting = select(Job.id).where(Job.status == JobStatus.WAITING_FOR_RESOURCES)
        return session.exec(waiting).first() is not None


def _anything_fits() -> bool:
    """Whether some waiting job has not been told yet why it waits."""
    with database().read() as session:
        jobs = session.exec(select(Job).where(col(Job.rates).is_(None))).all()
        return any(not refusals for refusals in refusals_of_jobs(session, jobs).values())


if __name__ == "__main__":
    main()
