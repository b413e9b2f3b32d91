"""`baseload charges --measurements`: what each clock has measured of a job's runs."""

from __future__ import annotations

from baseload.commands.lookup import PREFIXES, find_newest_job
from baseload.commands.session import Document, Session
from baseload.commands.terminal import credits_text, moment_text

_CLOCKS = (
    ("node", "node, wall clock"),
    ("supervisor", "supervisor, monotonic"),
    ("allocation", "control plane, allocation"),
)


def show_measurements(session: Session, job: str) -> None:
    """Show the runs of a job that concern whoever asks; an id may be of another account's job."""
    is_id = job.startswith(f"{PREFIXES['jobs']}-")
    job_id = job if is_id else find_newest_job(session, job)["id"]
    found = session.get(f"/v1/jobs/{job_id}/measurements")
    if session.screen.as_json:
        session.screen.json(found)
        return
    if not found["runs"]:
        session.screen.result(f"{job_id}: nothing is measured yet")
    for run in found["runs"]:
        _show_run(session, run)
    if not found["is_whole"]:
        session.screen.say("There are more lines: the API answers for one attempt or worker.")


def _show_run(session: Session, run: Document) -> None:
    name = f"worker {run['worker']}, attempt {run['attempt']}"
    session.screen.result(f"{name}, on {run['node_id'] or 'no node'}")
    rows = [
        [clock, *(moment_text(run[key][end]) for end in ("begins_at", "ends_at")),
         _seconds(run[key]["seconds"]), difference]
        for (key, clock), difference in zip(
            _CLOCKS,
            (_signed(run["node_difference_s"]), "", _signed(run["allocation_difference_s"])),
            strict=True,
        )
    ]  # fmt: skip
    rows.append(["posted", "", "", _seconds(run["posted_s"]), _signed(_unposted(run))])
    session.screen.table(("clock", "from", "until", "seconds", "difference"), rows)
    lines = [
        [
            each["transaction_id"],
            each["kind"],
            f"{each['from_s']} to {each['through_s']} s",
            credits_text(each["amount_microcredits"]),
            moment_text(each["posted_at"]),
            each["reversed_by"] or "",
        ]
        for each in run["slices"]
    ]
    head = ("transaction", "kind", "seconds", "credits", "posted", "taken back by")
    session.screen.table(head, lines)


def _unposted(run: Document) -> int | None:
    unposted: int | None = run["unposted_s"]
    return None if unposted is None else -unposted


def _seconds(seconds: int | None) -> str:
    return "unknown" if seconds is None else f"{seconds} s"


def _signed(seconds: int | None) -> str:
    """A difference to the seconds of the supervisor."""
    return "" if seconds is None else f"{seconds:+d} s"
