"""Restarts: a job goes on after the loss of a rented machine, as often as it may."""

from collections import defaultdict
from collections.abc import Iterable

from tests.simulation.contracts import CloudMachine, JobView, Process
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import Part
from workflows.contracts.jobs import parse_run_id

WANTED = ("killed by", "removed", "could not be confirmed", "credits are used up")
"""In the reason of a job whose machine somebody has ended, or which must not go on."""


def _at_rest(life: Life) -> Iterable[str]:
    rented = _rented(life)
    processes = life.processes() if rented else {}
    for job in life.rows.jobs():
        most = life.jobs[job.job_id].max_restarts
        if job.restarts > most:
            yield f"{job.job_id} has restarted {job.restarts} times, and may {most} times"
        yield from _goes_on(life, job, _lost(processes.get(job.job_id, ()), rented))


def _rented(life: Life) -> dict[str, CloudMachine]:
    """The machines of clouds that ended by themselves, by minion id."""
    ended = {one.name: one for one in life.world.cloud_machines() if one.stopped_at is not None}
    if not ended:
        return {}
    leases = {one.lease_id: one.name for one in life.rows.leases() if one.name in ended}
    nodes = [(node.minion_id, leases.get(node.lease_id or "")) for node in life.rows.nodes()]
    return {minion: ended[name] for minion, name in nodes if minion and name}


def _lost(
    processes: Iterable[Process], rented: dict[str, CloudMachine]
) -> dict[int, list[Process]]:
    """The runs that were cut off by the end of their machines, by attempt."""
    found: dict[int, list[Process]] = defaultdict(list)
    for one in processes:
        if one.was_cut and one.machine in rented:
            found[parse_run_id(one.run_id)[2]].append(one)
    return found


def _goes_on(life: Life, job: JobView, lost: dict[int, list[Process]]) -> Iterable[str]:
    plan, requests = life.jobs[job.job_id], life.requests_of(job.job_id)
    if len(lost) > plan.max_restarts + 1 and "start" not in requests:
        times = f"after losses in attempts {sorted(lost)}"
        yield f"{job.job_id} went on {times}, and may {plan.max_restarts} times"
    is_its_own = requests or plan.max_duration_s is not None or plan.behaviour.exit_code
    if job.status != "failed" or job.attempt not in lost or is_its_own:
        return
    has_failed = job.attempt <= plan.behaviour.fails_first
    was_wanted = has_failed or any(words in (job.status_reason or "") for words in WANTED)
    if job.restarts < plan.max_restarts and not was_wanted:
        left = f"with {job.restarts} of {plan.max_restarts} restarts"
        yield f"{job.job_id} failed {left}, as its machine was lost: {job.status_reason}"


RESTARTS = Part(name="restarts", workflows=(), at_rest=_at_rest)
