"""Jobs: what people ask of them, what goes wrong with their runs, and what always holds."""

from collections import defaultdict
from collections.abc import Iterable

from tests.simulation.contracts import JobView, NotFound, Process
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import Part, asks, calls_fail, goes_wrong
from tests.simulation.plan import Draft, JobPlan
from workflows.contracts.jobs import parse_run_id

FINAL = ("finished", "failed", "canceled", "archived")
WAITS_FOR_A_PERSON = ("stopped", "waiting_for_resources")


def _jobs(draft: Draft) -> int:
    return draft.jobs


def _always(life: Life) -> Iterable[str]:
    """No job has a command of two attempts alive at once."""
    alive: dict[tuple[str, int], list[Process]] = defaultdict(list)
    for process in life.world.processes():
        if process.state == "running":
            job_id, worker, _ = parse_run_id(process.run_id)
            alive[job_id, worker].append(process)
    for (job_id, _), runs in alive.items():
        if len(runs) > 1 and not any(_is_given_up(life, run) for run in runs):
            yield f"{job_id} has two attempts alive: {[run.run_id for run in runs]}"


def _at_rest(life: Life) -> Iterable[str]:
    processes = life.processes()
    for job in life.rows.jobs():
        yield from _not_stuck(life, job)
        yield from _as_asked(life, job)
        yield from _no_process_left(life, job, processes[job.job_id])
        yield from _runs_as_its_policy_says(life, job, processes[job.job_id])


def _not_stuck(life: Life, job: JobView) -> Iterable[str]:
    """It is final, or it waits for a person and says why; its workflow says the same."""
    if job.status not in (*FINAL, *WAITS_FOR_A_PERSON):
        yield f"{job.job_id} is stuck: {job.status} ({job.status_reason})"
    if job.status == "waiting_for_resources" and not job.status_reason:
        yield f"{job.job_id} waits for resources, and does not say why"
    try:
        run = life.engine.describe(f"job/{job.job_id}")
    except NotFound:
        if job.is_open:
            yield f"{job.job_id} is {job.status}, and has no workflow"
        return
    if job.is_open != (run.status == "running"):
        yield f"{job.job_id} is {job.status}, and its workflow is {run.status}"
    shown = run.search_attributes.get("ResourceStatus", job.status)
    if job.is_open and shown != job.status:
        yield f"{job.job_id} is {job.status}, and its workflow shows {shown}"


def _as_asked(life: Life, job: JobView) -> Iterable[str]:
    """The last request of a person came true, or something else had ended the job before."""
    requests = life.requests_of(job.job_id)
    if not requests:
        return
    last = requests[-1]
    if last in ("cancel", "discard") and job.status not in FINAL:
        yield f"{job.job_id} was canceled, and is {job.status}"
    if last == "remove" and job.status != "archived":
        yield f"{job.job_id} was removed, and is {job.status}"
    if last == "stop" and job.status not in (*FINAL, "stopped"):
        yield f"{job.job_id} was stopped, and is {job.status}"


def _no_process_left(life: Life, job: JobView, processes: list[Process]) -> Iterable[str]:
    """An ended job has no live process but on machines that were given up by force."""
    if job.is_open and job.status != "stopped":
        return
    left = [
        one.run_id for one in processes if one.state == "running" and not _is_given_up(life, one)
    ]
    if left:
        yield f"{job.job_id} is {job.status}, and these runs are alive: {left}"


def _is_given_up(life: Life, process: Process) -> bool:
    """Whether a person has removed the node of its machine by force, or it left with its region."""
    return any(
        node.was_forced and process.machine in (node.minion_id, node.host, node.node_id)
        for node in life.rows.nodes()
    )


def _runs_as_its_policy_says(life: Life, job: JobView, processes: list[Process]) -> Iterable[str]:
    """A command whose success could be seen is not run again, unless a person starts it."""
    attempts: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        if process.starts:
            attempts[parse_run_id(process.run_id)[2]].append(process)
    requests = life.requests_of(job.job_id)
    plan = life.jobs[job.job_id]
    failed = [
        number
        for number, runs in attempts.items()
        if any(_has_failed_by_itself(life, run, number, plan) for run in runs)
    ]
    if len(failed) > 1 + plan.max_retries and "start" not in requests and not life.has_forgotten:
        yield f"{job.job_id} has failed in attempts {failed}, with {plan.max_retries} retries"
    if "start" in requests or plan.type.is_service or life.has_forgotten:
        return
    for number, runs in sorted(attempts.items()):
        whole = len(runs) == plan.worker_count
        seen = all(
            run.succeeded and not run.was_cut and not _is_given_up(life, run) for run in runs
        )
        if whole and seen and number < max(attempts):
            yield f"{job.job_id} had succeeded in attempt {number}, and ran again"


LIFECYCLE = "JobLifecycle"


def _has_failed_by_itself(life: Life, run: Process, number: int, plan: JobPlan) -> bool:
    fails = plan.behaviour.exit_code != 0 or number <= plan.behaviour.fails_first
    is_whole = run.state == "exited" and run.measured_s >= plan.behaviour.seconds
    return fails and is_whole and not run.was_cut and not _is_given_up(life, run)


JOBS = Part(
    name="jobs",
    workflows=(LIFECYCLE,),
    drawers=(
        (10, asks("job", _jobs, LIFECYCLE, "cancel", "cancel", "discard")),
        (6, asks("job", _jobs, LIFECYCLE, "stop", "start", "stop")),
        (4, asks("job", _jobs, LIFECYCLE, "remove", "resubmit")),
        (20, calls_fail(LIFECYCLE)),
        (3, calls_fail(LIFECYCLE, modes=("canceled",))),
        (6, goes_wrong("job", _jobs, LIFECYCLE, "process_crashes", "process_hangs")),
        (3, goes_wrong("store", lambda _: 1, LIFECYCLE, "store_away")),
    ),
    always=_always,
    at_rest=_at_rest,
)
