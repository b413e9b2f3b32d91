"""The commands that change jobs, one or many: cancel, stop, start, remove, retry; and wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.confirmation import Yes, confirm
from baseload.commands.durations import seconds_of
from baseload.commands.jobs import Reference, References, job_has_ended
from baseload.commands.lookup import (
    ENDED,
    find,
    find_jobs,
    find_newest_job,
    find_open_job,
    is_pattern,
)
from baseload.commands.session import Document, NegativeError, Session, command, error_text
from baseload.commands.stream_merge import Arrival, Deadline, Feed, Stream
from baseload.commands.terminal import counted
from baseload.commands.waiting import state_line
from baseload.errors import ApiError

app = new_app()
Wait = Annotated[bool, typer.Option("--wait", help="until they have ended")]
SERVICES = frozenset({"notebook", "endpoint"})
MOST_STREAMS = 10
POLL_S = 5.0
MOST_NAMES = 10
CANCELING, STOPPING, STARTING, REMOVING = "canceling", "stopping", "starting", "removing"
"""What happens to a job after the API has accepted such a request."""


@command(app)
def cancel(
    session: Session,
    jobs: References,
    discard: Annotated[
        bool, typer.Option("--discard", help="store no output, the log only")
    ] = False,
    wait: Wait = False,
    yes: Yes = False,
) -> None:
    """End jobs for good, in whatever state they are; their logs and output stay."""
    found = find_jobs(session, jobs, find_open_job, lambda job: job["status"] not in ENDED)
    _confirm(jobs, found, "End {} for good?", yes=yes)
    doing = f"{CANCELING}, without its output" if discard else CANCELING
    changed = _signal(session, found, "cancel", doing, discard=discard or None)
    if wait:
        changed, doing = _awaited(session, changed, doing, lambda job: job["status"] in ENDED), ""
    _show_changed(session, jobs, changed, doing)


@command(app)
def stop(session: Session, jobs: References, wait: Wait = False, yes: Yes = False) -> None:
    """Stop notebooks or endpoints; they can be started again, with their files."""
    found = find_jobs(session, jobs, find_open_job, _can_stop)
    _confirm(jobs, found, "Stop {}?", yes=yes)
    changed = _signal(session, found, "stop", STOPPING)
    doing = STOPPING
    if wait:
        changed, doing = _awaited(session, changed, doing, job_has_ended), ""
    _show_changed(session, jobs, changed, doing)


@command(app)
def start(session: Session, jobs: References, yes: Yes = False) -> None:
    """Start stopped notebooks or endpoints again, and jobs that pause before a retry at once."""
    found = find_jobs(session, jobs, find_open_job, _can_start)
    _confirm(jobs, found, "Start {}?", yes=yes)
    changed = _signal(session, found, "start", STARTING)
    _show_changed(session, jobs, changed, STARTING)


@command(app)
def rm(session: Session, jobs: References, yes: Yes = False) -> None:
    """Remove jobs that have ended, with their logs and outputs; their charges stay."""
    found = find_jobs(session, jobs, _only_job, job_has_ended)
    _confirm(jobs, found, "Remove {} with their logs and outputs?", yes=yes)
    removed = _each(session, found, lambda each: session.delete(f"/v1/jobs/{each['id']}"), REMOVING)
    if session.screen.as_json:
        session.screen.json({"items": removed})
        return
    _print(session, removed, REMOVING)


@command(app)
def retry(
    session: Session,
    job: Reference,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="print its log; end as it ends")
    ] = False,
) -> None:
    """Submit a job again as a new one, whatever became of it: same code, command and variables."""
    found = find_newest_job(session, job)
    try:
        again = session.post(f"/v1/jobs/{found['id']}/resubmit")
    except ApiError as refusal:
        if any(each.field == "code.upload_id" for each in refusal.errors):
            raise NegativeError(
                f"{found['name']}: its code is not kept any more; submit it again from its folder"
            ) from refusal
        raise
    if follow:
        from baseload.commands.submit import follow_to_end

        session.screen.say(f"{again['name']}: submitted as {again['id']}")
        follow_to_end(session, again)
    elif session.screen.as_json:
        session.screen.json(again)
    else:
        _print(session, [again])


@command(app, "wait")
def wait_(
    session: Session,
    jobs: References,
    for_: Annotated[
        str, typer.Option("--for", metavar="STATUS", help="such as running, or an end before it")
    ] = "finished",
    timeout: Annotated[str | None, typer.Option(help="at most: 90, 10m, 1h30m")] = None,
) -> None:
    """Wait until jobs have ended or are stopped; the exit code is 0 only if all have finished.

    With --for, until they have that status. It is 1 too when the timeout passes; the jobs go on.
    """
    deadline = Deadline(None if timeout is None else seconds_of(timeout, "--timeout"))
    session.items("/v1/jobs", 1, status=[for_])  # The API knows which statuses there are.
    found = find_jobs(session, jobs)
    ended = _wait_for(session, found, lambda job: _is_over(job, for_), deadline)
    if session.screen.as_json:
        session.screen.json({"items": ended})
    else:
        _print(session, ended)
    open_ = [each for each in ended if not _is_over(each, for_)]
    if open_:
        limit = f"{timeout} s" if timeout and timeout.isdecimal() else timeout
        raise NegativeError(f"{_names(open_)}: not {_goal(for_)} after {limit}")
    missed = [each for each in ended if each["status"] != for_]
    if missed:
        what = "did not finish" if for_ == "finished" else f"ended without being {for_}"
        raise NegativeError(f"{len(missed)} of {len(ended)} {what}: {_names(missed)}")


@command(app)
def kill_all(session: Session, yes: Yes = False) -> None:
    """End all jobs of the account."""
    if not yes:
        open_ = [job for job in session.items("/v1/jobs") if not job_has_ended(job)]
        confirm(f"End {counted(len(open_), 'job')} for good?", yes=yes)
    killed = session.post("/v1/jobs/kill-all")
    if session.screen.as_json:
        session.screen.json(killed)
    else:
        session.screen.result(f"canceling {counted(len(killed['job_ids']), 'job')}")


def _is_over(job: Document, status: str) -> bool:
    return job["status"] == status or job_has_ended(job)


def _goal(status: str) -> str:
    return "ended" if status == "finished" else status


def _wait_for(
    session: Session,
    jobs: list[Document],
    is_over: Callable[[Document], bool],
    deadline: Deadline | None = None,
) -> list[Document]:
    """The jobs once all are over, or the limit has passed.

    Each is said on stderr. The events of the first ten jobs wake it at once; all jobs are read
    again every five seconds.
    """
    known = {each["id"]: each for each in jobs}
    waited = [each for each in jobs if not is_over(each)]
    if waited:
        session.screen.say(f"waiting for {_names(waited)}")
    limit = deadline or Deadline(None)
    feed = Feed(session.transport)
    for each in waited[:MOST_STREAMS] if not limit.passed else ():
        feed.add(Stream(each["id"], f"/v1/jobs/{each['id']}/events", {"follow": True}))
    wanted = {each["id"] for each in waited}
    while wanted and not limit.passed:
        arrival = _arrival(feed, min(POLL_S, limit.left_s))
        for job_id in {arrival.name} & wanted if arrival is not None else set(wanted):
            known[job_id] = session.get(f"/v1/jobs/{job_id}")
            if is_over(known[job_id]):
                wanted.discard(job_id)
                session.screen.say(state_line(known[job_id]))
    return list(known.values())


def _arrival(feed: Feed, limit_s: float) -> Arrival | None:
    """The next arrival; None also for a stream that the API cannot open beside many others."""
    try:
        return feed.take(max(limit_s, 0))
    except ApiError as refusal:
        if refusal.code != "too-many-requests":
            raise
        return None


def _only_job(session: Session, reference: str) -> Document:
    return find(session, "jobs", reference)


def _can_stop(job: Document) -> bool:
    return job["type"] in SERVICES and job["status"] not in {*ENDED, "stopped"}


def _can_start(job: Document) -> bool:
    return job["status"] == "stopped" or bool(job.get("retry_at"))


def _each(
    session: Session, jobs: list[Document], change: Callable[[Document], Document], doing: str
) -> list[Document]:
    """The answers of a change for each job. A refusal of one is said, and the others go on.

    doing: what the change does, as `_print` shows it.
    Raises: ApiError, the first refusal, after the last job.
    """
    answers, refusals = [], []
    if not jobs:
        session.screen.say("nothing to do: no job of such a name is in a state for this")
    for each in jobs:
        try:
            answers.append(change(each))
        except ApiError as refusal:
            refusals.append(refusal)
    for other in refusals[1:]:
        session.screen.say(f"baseload: {error_text(other)}")
    if refusals:
        _print(session, [] if session.screen.as_json else answers, doing)
        raise refusals[0]
    return answers


def _signal(
    session: Session, jobs: list[Document], verb: str, doing: str, **query: Any
) -> list[Document]:
    """The jobs as they were when the API accepted the request; see `_each`."""
    path = "/v1/jobs/{}/{}"
    return _each(
        session, jobs, lambda each: session.post(path.format(each["id"], verb), **query), doing
    )


def _awaited(
    session: Session, jobs: list[Document], doing: str, is_over: Callable[[Document], bool]
) -> list[Document]:
    """The jobs once they are over; before, what happens to them is said on stderr."""
    for each in jobs:
        session.screen.say(f"{each['name']}: {doing}")
    return _wait_for(session, jobs, is_over)


def _show_changed(
    session: Session, references: list[str], jobs: list[Document], doing: str
) -> None:
    """Print the jobs, each with what happens to it, or with its status."""
    if not session.screen.as_json:
        _print(session, jobs, doing)
    elif len(references) == 1 and not is_pattern(references[0]):
        session.screen.json(jobs[0])
    else:
        session.screen.json({"items": jobs})


def _confirm(references: Iterable[str], jobs: list[Document], question: str, *, yes: bool) -> None:
    """Ask a person before a pattern changes several jobs.

    Raises: MistakeError, when the person says no, or there is none.
    """
    if len(jobs) > 1 and any(is_pattern(each) for each in references):
        confirm(question.format(f"{counted(len(jobs), 'job')} ({_names(jobs)})"), yes=yes)


def _names(jobs: list[Document]) -> str:
    names = ", ".join(each["name"] for each in jobs[:MOST_NAMES])
    more = len(jobs) - MOST_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _print(session: Session, jobs: Iterable[Document], doing: str = "") -> None:
    """Print each job with its status, or with what happens to it: an answer has the status of
    before, as the job's workflow has yet to hear of the request."""
    for each in jobs:
        session.screen.result(f"{each['id']}  {each['name']}  {doing or each['status']}")
