"""Jobs: what people ask of them, what goes wrong with their runs, and what always holds."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from tests.simulation.contracts import JobView, NotFound, Process
from tests.simulation.engine.clock import BEGIN
from tests.simulation.life import Life, machines_given_up
from tests.simulation.lifecycles.part import (
    Part,
    asks,
    calls_fail,
    calls_keep_failing,
    goes_wrong,
    together,
    while_it,
)
from tests.simulation.plan import Draft, In, JobPlan, On
from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.jobs import parse_run_id

FINAL = ("finished", "failed", "canceled", "archived")
UNCONFIRMED = ("held", "notified")
LONG_S = 15_000.0
"""Longer than a job waits for the end of its commands."""
IMPOSSIBLE = ("has no allocation", "there is no such", "is not in the store", "was not staged")
"""What rows and nodes say to those who ask for what they cannot have."""
SETTLES = timedelta(minutes=30)
"""After that long without faults, nothing is late any more that one of them had held up."""
IS_REMOVED = "is being removed"
NODE_IS_LEFT = (
    *("not reachable for", IS_REMOVED, "was removed while", "its machine is gone"),
    *("killed by", "are not believed any more"),
)
"""In the reason of a job that has failed because its node was away for too long or was removed, or
its machine was lost, killed by a person or has lied before the output was stored."""
STORE_IS_AWAY = "the object store does not answer"
HAS_BEGUN = ("running", "unreachable", "uploading")
"""While a job shows these, no command of its present attempt has still to begin."""
ENDS_FOR_GOOD = ("hears cancel", "hears remove", "hears a cancellation")
REMOVALS = {"remove", "force_remove", "reschedule_remove"}
WAITS_FOR_A_PERSON = ("stopped", "waiting_for_resources")


def _jobs(draft: Draft) -> int:
    return draft.jobs


def _always(life: Life) -> Iterable[str]:
    """No job has a command of two attempts alive at once; what runs holds its allocation."""
    held = {one.run_id for one in life.rows.allocations()}
    alive: dict[tuple[str, int], list[Process]] = defaultdict(list)
    free: list[Process] = []
    for process in life.world.processes():
        if process.state == "running":
            job_id, worker, _ = parse_run_id(process.run_id)
            alive[job_id, worker].append(process)
            if process.run_id not in held:
                free.append(process)
    excused = machines_given_up(life) if free else frozenset()
    for process in free:
        if process.machine not in excused:
            yield f"{process.run_id} runs, and nothing is allocated to it any more"
    yield from _volumes_have_one_writer(life, {process.run_id for process in free})
    for (job_id, _), runs in alive.items():
        if len(runs) < 2:
            continue
        excused = machines_given_up(life)
        if not any(one.machine in excused for one in runs):
            yield f"{job_id} has two attempts alive: {[run.run_id for run in runs]}"
    if life.calm_at is not None:
        yield from _folders_are_removed(life, life.calm_at)


def _volumes_have_one_writer(life: Life, without_allocation: set[str]) -> Iterable[str]:
    """No command has a volume that a command of another job writes to, while both are alive.

    without_allocation: runs that an invariant of their own is about.
    """
    having: dict[str, dict[str, VolumeAccess]] = defaultdict(dict)
    for process in life.world.processes():
        job_id = parse_run_id(process.run_id)[0]
        if process.state == "running" and process.run_id not in without_allocation:
            for volume_id, access in life.volumes.get(job_id, ()):
                having[volume_id][job_id] = access
    for volume_id, jobs in having.items():
        if len(jobs) > 1 and VolumeAccess.WRITE in jobs.values():
            yield f"{volume_id}: is written, and {len(jobs)} jobs have it: {sorted(jobs)}"


def _folders_are_removed(life: Life, calm_at: datetime) -> Iterable[str]:
    """What has ended when all was well has left no folder on its node."""
    ended = {
        one.run_id
        for one in life.world.processes()
        if one.ended_at is not None and one.ended_at > calm_at + SETTLES and not one.has_resisted
    }
    if not ended:
        return
    given_up = machines_given_up(life)
    ended -= {one.run_id for one in life.world.processes() if one.machine in given_up}
    jobs = life.views()
    for _, run_id in life.world.folders():
        job = jobs.get(parse_run_id(run_id)[0])
        if run_id in ended and job is not None and not job.is_open:
            yield f"{job.job_id} is {job.status}, and {run_id} has left its folder on its node"


def _at_rest(life: Life) -> Iterable[str]:
    processes = life.processes()
    given_up = machines_given_up(life)
    waiting = {one.job_id for one in life.rows.allocations() if one.status in UNCONFIRMED}
    stored = life.world.stored()
    forced, ends = machines_given_up(life, ("force_remove",)), _heard_ends(life)
    for job in life.rows.jobs():
        yield from _not_stuck(life, job)
        yield from _as_asked(life, job)
        yield from _no_process_left(job, processes[job.job_id], given_up)
        left = given_up if "start" in life.requests_of(job.job_id) else forced
        yield from _one_attempt_at_a_time(job, processes[job.job_id], left)
        yield from _ends_for_good(job, processes[job.job_id], ends)
        yield from _leaves_as_asked(life, job, processes[job.job_id])
        yield from _runs_as_its_policy_says(life, job, processes[job.job_id], given_up)
        yield from _succeeds_as_its_workers(life, job, processes[job.job_id])
        yield from _output_is_stored(life, job, processes[job.job_id])
        yield from _output_is_delivered(life, job)
        yield from _nothing_stored_too_long(job, stored.get(job.job_id, ()))
        if job.status == "failed" and any(
            words in (job.status_reason or "") for words in IMPOSSIBLE
        ):
            yield f"{job.job_id} failed by a mistake of the platform: {job.status_reason}"
        if job.job_id in waiting:
            yield f"{job.job_id} is {job.status}, and does not take the place that it was given"


def _nothing_stored_too_long(job: JobView, stored: Sequence[str]) -> Iterable[str]:
    """Run specs have secrets, snapshots cost; whoever removes a job wants nothing of it kept."""
    is_waiting = job.is_open and job.status in WAITS_FOR_A_PERSON
    if "orders" in stored and (is_waiting or not job.is_open):
        yield f"{job.job_id} is {job.status}, and its run specs are stored"
    if "states" in stored and not job.is_open:
        yield f"{job.job_id} is {job.status}, and its snapshots are stored"
    if stored and job.status == "archived":
        yield f"{job.job_id} is removed, and {', '.join(stored)} of it are stored"


def _output_is_stored(life: Life, job: JobView, processes: list[Process]) -> Iterable[str]:
    """What the commands of a finished job have written in its last attempt is stored."""
    if job.status != "finished" or not life.jobs[job.job_id].keeps_output:
        return
    for one in processes:
        if parse_run_id(one.run_id)[2] != job.attempt:
            continue
        found = life.world.stored_output_bytes(one.run_id)
        if found != one.written_bytes:
            yield f"{one.run_id} has written {one.written_bytes} bytes, and {found} are stored"


def _output_is_delivered(life: Life, job: JobView) -> Iterable[str]:
    """A delivery ends, and says of the destination what is there."""
    arrived = life.world.delivered_attempt(job.job_id) == job.attempt
    says_why = job.status == "archived" or "was not delivered" in (job.status_reason or "")
    if job.delivery_status == "pending" and job.status != "uploading":
        yield f"{job.job_id} is {job.status}, and its delivery has not ended"
    if job.delivery_status == "delivered" and not arrived:
        yield f"{job.job_id} is delivered, and nothing of attempt {job.attempt} has arrived"
    if job.delivery_status == "failed" and not says_why:
        yield f"{job.job_id} was not delivered, and says: {job.status_reason}"
    if job.delivery_status == "pending" and any(
        job.job_id == one.job_id for one in life.rows.allocations()
    ):
        yield f"{job.job_id} holds machines while its output is sent"


def _succeeds_as_its_workers(life: Life, job: JobView, processes: list[Process]) -> Iterable[str]:
    """A job that nobody has asked to end is finished when all its commands have succeeded, unless
    its output could not be had or stored for so long that it was given up."""
    plan = life.jobs[job.job_id]
    last = [one for one in processes if parse_run_id(one.run_id)[2] == job.attempt]
    all_succeeded = len(last) == plan.worker_count and all(one.succeeded for one in last)
    was_asked = life.requests_of(job.job_id) or plan.max_duration_s is not None
    was_cut = job.job_id in life.forgotten or any(one.was_cut for one in processes)
    is_excused = was_asked or was_cut or _output_is_out_of_reach(life, job.status_reason or "")
    if all_succeeded and job.status == "failed" and not is_excused:
        yield f"{job.job_id} failed, and all its commands succeeded: {job.status_reason}"


def _output_is_out_of_reach(life: Life, reason: str) -> bool:
    """Whether a job may fail for that reason although its commands have succeeded.

    Its node could not be asked for an hour, was removed by a person (by force: its login is
    refused), or has lost its machine; or the object store was away for an hour.
    """
    if any(words in reason for words in NODE_IS_LEFT):
        return True
    if STORE_IS_AWAY in reason:
        return life.world.longest_store_absence_s() >= 3600
    forced = [node.node_id for node in life.rows.nodes() if node.was_forced]
    return "the login as" in reason and any(node_id in reason for node_id in forced)


def _one_attempt_at_a_time(
    job: JobView, processes: list[Process], given_up: frozenset[str]
) -> Iterable[str]:
    """No worker has begun again before its command of an earlier attempt had ended."""
    begun: dict[int, list[tuple[datetime, Process]]] = defaultdict(list)
    for one in processes:
        if one.began_at is not None and one.machine not in given_up:
            begun[parse_run_id(one.run_id)[1]].append((one.began_at, one))
    for runs in begun.values():
        runs.sort(key=lambda each: each[0])
        for (_, before), (began_at, after) in pairwise(runs):
            if before.ended_at is None or before.ended_at > began_at:
                yield f"{job.job_id}: {after.run_id} began while {before.run_id} was alive"


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
    requests = life.persons_requests_of(job.job_id)
    if not requests:
        return
    verbs, last = {each.verb for each in requests}, requests[-1].verb
    if {"cancel", "discard"} & verbs and job.status not in FINAL:
        yield f"{job.job_id} was canceled, and is {job.status}"
    if last == "remove" and job.status != "archived":
        yield f"{job.job_id} was removed, and is {job.status}"
    if last == "stop" and job.status not in (*FINAL, "stopped"):
        yield f"{job.job_id} was stopped, and is {job.status}"
    before = requests[-1].attempt
    if last == "start" and before and job.status == "stopped" and job.attempt == before:
        yield f"{job.job_id} was started, and is stopped as before: {job.status_reason}"


def _heard_ends(life: Life) -> dict[str, datetime]:
    """When each job was first asked to end for good after its commands had begun."""
    if life.has_forgotten:  # It may have forgotten that as well.
        return {}
    heard: dict[str, datetime] = {}
    for at, who, what, shown in life.engine.log.lines:
        if what in ENDS_FOR_GOOD and shown in HAS_BEGUN and who.startswith("job/"):
            heard.setdefault(who.removeprefix("job/"), BEGIN + timedelta(microseconds=at))
    return heard


def _ends_for_good(
    job: JobView, processes: list[Process], ends: dict[str, datetime]
) -> Iterable[str]:
    """A job that was asked to end for good begins no attempt after that one."""
    if (asked_at := ends.get(job.job_id)) is None:
        return
    begun = [(one.began_at, parse_run_id(one.run_id)[2]) for one in processes if one.began_at]
    last = max((attempt for began_at, attempt in begun if began_at <= asked_at), default=0)
    if again := [attempt for began_at, attempt in begun if began_at > asked_at and attempt > last]:
        yield f"{job.job_id} was to end for good in attempt {last}, and began {min(again)}"


def _leaves_as_asked(life: Life, job: JobView, processes: list[Process]) -> Iterable[str]:
    """A job ends with its node only where a person has removed the node, its region, its provider
    or its lease: one that loses its machine otherwise goes on elsewhere."""
    if job.status not in ("failed", "stopped") or IS_REMOVED not in (job.status_reason or ""):
        return
    machines = {one.machine for one in processes if parse_run_id(one.run_id)[2] == job.attempt}
    nodes = [node for node in life.rows.nodes() if node.minion_id in machines]
    asked = {one.resource_id for one in life.requests if one.verb in REMOVALS | {"kill"}}
    theirs = {one for node in nodes for one in (node.node_id, node.region_id, node.lease_id)}
    if nodes and not asked & {*theirs, *life.providers}:
        yield f"{job.job_id} ended with a node that nobody has removed: {job.status_reason}"


def _no_process_left(
    job: JobView, processes: list[Process], given_up: frozenset[str]
) -> Iterable[str]:
    """An ended job has no live process but on machines that were given up by force."""
    if job.is_open and job.status != "stopped":
        return
    left = [
        one.run_id for one in processes if one.state == "running" and one.machine not in given_up
    ]
    if left:
        yield f"{job.job_id} is {job.status}, and these runs are alive: {left}"


def _runs_as_its_policy_says(
    life: Life, job: JobView, processes: list[Process], given_up: frozenset[str]
) -> Iterable[str]:
    """A command whose success could be seen is not run again, unless a person starts it."""
    attempts: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        if process.starts:
            attempts[parse_run_id(process.run_id)[2]].append(process)
    plan = life.jobs[job.job_id]
    is_excused = "start" in life.requests_of(job.job_id) or job.job_id in life.forgotten
    # A rented machine may have ended before its output was stored.
    kept = {*life.machines} - given_up
    failed = [
        number
        for number, runs in attempts.items()
        if any(
            run.machine not in given_up and _has_failed_by_itself(run, number, plan) for run in runs
        )
    ]
    if len(failed) > 1 + plan.max_retries and not is_excused:
        yield f"{job.job_id} has failed in attempts {failed}, with {plan.max_retries} retries"
    if plan.type.is_service or is_excused:
        return
    for number, runs in sorted(attempts.items()):
        whole = len(runs) == plan.worker_count
        seen = all(run.succeeded and not run.was_cut and run.machine in kept for run in runs)
        if whole and seen and number < max(attempts):
            yield f"{job.job_id} had succeeded in attempt {number}, and ran again"


LIFECYCLE = "JobLifecycle"


def _has_failed_by_itself(run: Process, number: int, plan: JobPlan) -> bool:
    fails = plan.behaviour.exit_code != 0 or number <= plan.behaviour.fails_first
    is_whole = run.state == "exited" and run.measured_s >= plan.behaviour.seconds
    return fails and is_whole and not run.was_cut


def _nodes(draft: Draft) -> int:
    return draft.machines


_ENDS = asks("job", _jobs, LIFECYCLE, "cancel", "discard", "stop", "start", "remove")
_TAKEN = goes_wrong("cloud-machine", _jobs, LIFECYCLE, "preempted", "deadline")
_REMOVED = asks("node", _nodes, LIFECYCLE, "force_remove", "reschedule_remove")
_LEAVES = asks("node", _nodes, LIFECYCLE, "reschedule_remove")
_HELD_UP = calls_fail(LIFECYCLE, modes=("slow", "late", "lost", "killed_before", "killed_after"))
_CANCELED = calls_fail(LIFECYCLE, modes=("canceled",))
_RUN_FAILS = goes_wrong("job", _jobs, LIFECYCLE, "process_crashes", "process_hangs")

_CRASHES = goes_wrong("job", _jobs, LIFECYCLE, "process_crashes")
_STOPPED = asks("job", _jobs, LIFECYCLE, "stop")
_AROUND = (_ENDS, _REMOVED, _TAKEN)


def _around_its_placement(draft: Draft) -> None:
    """A job is slow to wait or to confirm, and meanwhile its node goes, or somebody asks."""
    when = On("record", draft.random.choice((1, 2)), of=draft.a("job", draft.jobs))
    mode = draft.random.choice(("refused", "late", "slow", "killed_before"))
    draft.add(when, "call", mode, s=draft.random.choice((1.0, 20.0)))
    gap_s = draft.random.choice((0.0, 0.2, 1.0))
    if draft.one_of(_AROUND):
        draft.acts[-1] = replace(draft.acts[-1], when=when.and_then(gap_s), is_here=True)


def _has_to_leave(draft: Draft) -> None:
    """A job loses its machine, its node is to be left, its command fails, or a person stops it."""
    causes = (_LEAVES, _CRASHES, _STOPPED, *((_TAKEN,) if draft.has_cloud else ()))
    draft.random.choice(causes)(draft)


def _hangs_for_hours(draft: Draft) -> None:
    """A process that nobody can end, and then its job has to leave, or somebody asks."""
    target = draft.a("job", draft.jobs)
    when = In(LIFECYCLE, "running", 1, draft.random.choice((0.5, 60.0)), target)
    draft.add(when, "world", "process_hangs", target, LONG_S, is_here=True)
    gap_s = draft.random.choice((2.0, 60.0, 600.0))
    draft.one_of((_LEAVES, _LEAVES, _ENDS))
    draft.acts[-1] = replace(draft.acts[-1], when=when.and_then(gap_s), is_here=True)


JOBS = Part(
    name="jobs",
    workflows=(LIFECYCLE,),
    drawers=(
        (7, asks("job", _jobs, LIFECYCLE, "cancel", "cancel", "discard")),
        (4, asks("job", _jobs, LIFECYCLE, "stop", "start", "stop")),
        (4, asks("job", _jobs, LIFECYCLE, "remove", "resubmit")),
        (14, calls_fail(LIFECYCLE)),
        (5, calls_keep_failing(LIFECYCLE)),
        (2, _CANCELED),
        (5, _RUN_FAILS),
        (3, goes_wrong("store", lambda _: 1, LIFECYCLE, "store_away")),
        (
            3,
            together(asks("job", _jobs, LIFECYCLE, "stop"), asks("job", _jobs, LIFECYCLE, "start")),
        ),
        (2, together(_ENDS, _ENDS)),
        (
            10,
            while_it(
                _has_to_leave, LIFECYCLE, ("running",), (*("uploading",) * 3, "stopped"),
                _ENDS, _ENDS, _CANCELED,
            ),
        ),
        (3, together(_HELD_UP, *_AROUND)),
        (4, _around_its_placement),
        (3, _hangs_for_hours),
        (3, together(_REMOVED, _ENDS, _TAKEN, _RUN_FAILS)),
        (2, together(_TAKEN, _ENDS, _REMOVED)),
        (2, together(_CANCELED, *_AROUND)),
    ),
    always=_always,
    at_rest=_at_rest,
)  # fmt: skip
