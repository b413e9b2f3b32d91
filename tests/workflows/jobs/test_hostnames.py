"""What nodes say of the hostname of a job: events, each once, and only of the job's own node."""

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import Handle, exits, job_id_of, placed, reaches
from workflows.contracts.reservations import HostnameState, WorkerHostname
from workflows.contracts.statuses import JobStatus
from workflows.jobs.job_lifecycle import JobLifecycle


async def says(handle: Handle, state: HostnameState, node_id: str = "nod-1") -> None:
    said = WorkerHostname(
        worker=0,
        attempt=1,
        hostname="web.local",
        state=state,
        addresses=("10.7.0.1",),
        message=f"web.local is {state}",
        node_id=node_id,
    )
    await handle.signal(JobLifecycle.worker_hostname, said)


async def test_a_hostname_is_told_in_events_and_repeated_words_are_not(stage: Stage) -> None:
    handle = await stage.job()
    await placed(stage, handle, "nod-1")
    await reaches(stage, handle, JobStatus.RUNNING)
    await says(handle, HostnameState.PUBLISHED, "nod-9")  # a node that has no run of the job
    for state in (HostnameState.PUBLISHED, HostnameState.PUBLISHED, HostnameState.CONFLICT):
        await says(handle, state)
    job_id = job_id_of(handle)
    events, told = stage.world.events[job_id], stage.world.told[job_id]
    await eventually(lambda: "job.hostname-conflict" in events, "the conflict is told")
    assert [each for each in events if "hostname" in each] == [
        "job.hostname-published",
        "job.hostname-conflict",
    ]
    assert told["job.hostname-conflict"] == "node nod-1: web.local is conflict"
    assert stage.world.statuses[job_id][-1] == JobStatus.RUNNING
    await exits(stage, handle, 0, code=0, elapsed_s=3)
    assert (await handle.result()).status == JobStatus.FINISHED
