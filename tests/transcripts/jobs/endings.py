"""Jobs that end by themselves, or are asked to."""

from tests.transcripts.jobs.answers import in_turn, slow
from tests.transcripts.jobs.given import (
    AGAIN,
    ASKED,
    BROKEN,
    DISCARDS,
    ENDED,
    NIGHT,
    NO_ROUTE,
    NOTEBOOK,
    ON_ONE,
    ON_TWO,
    exited,
    placed,
)
from tests.transcripts.jobs.whole_job import WholeJob
from tests.transcripts.whole import always, broken, fails
from workflows.contracts.jobs import Exit, RunReport, WorkerIdle
from workflows.contracts.reservations import HostnameState, WorkerHostname
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import LogCollected


def finishes() -> list[str]:
    job = WholeJob(worker_count=2)
    ends = [
        (30 + 10 * index, "worker_exited", exited(index, f"nod-{index + 1}")) for index in (0, 1)
    ]
    return job.play(ON_TWO, *ends)


def is_found_ended_by_a_poll_and_keeps_its_machine() -> list[str]:
    job = WholeJob(auto_terminate=False, state_interval_s=1800)
    job.engine.later(1500, lambda: job.ends.update({"job-1-0-1": ENDED}))
    return job.play((5, "placed", placed("nod-1", ephemeral=True)))


def is_tried_again_after_its_failure() -> list[str]:
    job = WholeJob(max_retries=1, state_interval_s=600)
    fails_again = exited(0, "nod-3", code=4, attempt=2)
    return job.play(
        ON_ONE,
        (30, "worker_exited", exited(0, "nod-1", code=3)),
        (60, "placed", AGAIN),
        (90, "worker_exited", fails_again),
    )


def one_worker_fails_and_ends_the_other() -> list[str]:
    job = WholeJob(worker_count=2)
    return job.play(ON_TWO, (30, "worker_exited", exited(1, "nod-2", code=1)))


def stops_starts_again_and_is_removed() -> list[str]:
    job = WholeJob(idle_timeout_s=300, **NOTEBOOK)
    return job.play(
        ON_ONE,
        (3000, "stop", NIGHT),
        (4000, "start_again", None),
        (4100, "placed", AGAIN),
        (9000, "stop", NIGHT),
        (200_000, "remove", None),
    )


def is_stopped_by_itself_and_canceled() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    return job.play(ON_ONE, (60, "worker_exited", exited(0, "nod-1")), (900, "cancel", DISCARDS))


def is_stopped_after_a_failure() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    return job.play(ON_ONE, (60, "worker_exited", exited(0, "nod-1", code=2)), most_s=900)


def ends_for_idleness() -> list[str]:
    report = RunReport(run_id="job-1-0-1", state=RunState.RUNNING, elapsed_s=400, idle_s=301)
    job = WholeJob(always("get_run_status", report), idle_timeout_s=300)
    idle = WorkerIdle(worker=0, attempt=1, idle_s=301, node_id="nod-1")
    return job.play(
        ON_ONE,
        (300, "worker_idle", idle.model_copy(update={"node_id": "nod-9"})),
        (400, "worker_idle", idle),
    )


def tells_what_its_node_says_of_its_hostname() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    published = WorkerHostname(
        worker=0,
        attempt=1,
        hostname="web.local",
        state=HostnameState.PUBLISHED,
        addresses=("10.7.0.1",),
        message="web.local is published: 10.7.0.1",
        node_id="nod-1",
    )
    taken = {"state": HostnameState.CONFLICT, "message": "another machine has the name"}
    return job.play(
        ON_ONE,
        (60, "worker_hostname", published),
        (61, "worker_hostname", published),
        (62, "worker_hostname", published.model_copy(update={"node_id": "nod-9"})),
        (70, "worker_hostname", published.model_copy(update=taken)),
        (75, "worker_hostname", published),
        (100, "stop", NIGHT),
        (5000, "worker_hostname", published.model_copy(update={"attempt": 2})),
        (200_000, "remove", None),
    )


def ends_when_it_has_run_for_so_long() -> list[str]:
    job = WholeJob(max_duration_s=5000)
    return job.play(ON_ONE)


def is_canceled_and_discards_its_output() -> list[str]:
    job = WholeJob(slow("store_output", 300))
    return job.play(ON_ONE, (60, "worker_exited", exited(0, "nod-1")), (100, "cancel", DISCARDS))


def is_canceled_and_gives_up_storing() -> list[str]:
    job = WholeJob(slow("store_output", 3000), slow("collect_log", 100))
    return job.play(ON_ONE, (60, "cancel", ASKED))


def finishes_but_cannot_store() -> list[str]:
    job = WholeJob(broken(BROKEN, "collect_log"))
    return job.play(ON_ONE, (60, "worker_exited", exited(0, "nod-1")))


def cannot_be_billed_nor_cleaned() -> list[str]:
    names = ("post_usage", "end_billing", "clean_worker", "discard_run_specs")
    job = WholeJob(broken(BROKEN, *names))
    return job.play(ON_ONE, (60, "worker_exited", exited(0, "nod-1")))


def cannot_be_staged() -> list[str]:
    job = WholeJob(broken(BROKEN, "stage_worker"), worker_count=2, state_interval_s=600)
    return job.play(ON_TWO)


def is_canceled_in_temporal() -> list[str]:
    job = WholeJob()
    job.engine.later(60, lambda: job.engine.cancel("job/job-1"))
    return job.play(ON_ONE)


def is_removed_after_its_end() -> list[str]:
    return WholeJob(removal=True, sequence=12).play()


def is_removed_while_it_runs() -> list[str]:
    return WholeJob().play(ON_ONE, (60, "remove", None))


def is_canceled_while_it_waits() -> list[str]:
    return WholeJob().play((700, "cancel", ASKED))


def is_canceled_while_it_is_staged() -> list[str]:
    job = WholeJob(slow("stage_worker", 600))
    return job.play(ON_ONE, (60, "cancel", ASKED), (60, "cancel", DISCARDS))


def is_stopped_and_canceled_in_temporal() -> list[str]:
    job = WholeJob(**NOTEBOOK)
    job.engine.later(90_000, lambda: job.engine.cancel("job/job-1"))
    return job.play(ON_ONE, (60, "stop", NIGHT))


def is_asked_to_begin_its_retry_now() -> list[str]:
    job = WholeJob(max_retries=3)
    failed = exited(0, "nod-1", code=3)
    again = failed.model_copy(update={"attempt": 2, "node_id": "nod-3"})
    return job.play(
        ON_ONE,
        (30, "worker_exited", failed),
        (33, "start_again", None),
        (60, "placed", AGAIN),
        (90, "worker_exited", again),
        (100, "stop", ASKED),
    )


def fails_while_it_is_canceled() -> list[str]:
    job = WholeJob(slow("get_run_status", 20), max_retries=3, worker_count=2)
    return job.play(
        ON_TWO,
        (3610, "worker_exited", exited(1, "nod-2", code=3)),
        (3610, "cancel", ASKED),
    )


def fails_while_its_nodes_are_asked() -> list[str]:
    job = WholeJob(slow("get_run_status", 20), worker_count=2)
    return job.play(ON_TWO, (3610, "worker_exited", exited(1, "nod-2", code=3)))


def hears_of_exits_that_are_not_its_own() -> list[str]:
    job = WholeJob(worker_count=2, end_all_on_failure=False)
    of_another_node, late = exited(0, "nod-2"), exited(0, "nod-1", attempt=3)
    killed = exited(0, "nod-1").model_copy(update={"exit": Exit(signal=9, elapsed_s=9)})
    told = exited(1, "nod-2").model_copy(update={"exit": Exit(exit_code=5, message="no memory")})
    messages = [(40 + at, "worker_exited", one) for at, one in enumerate((of_another_node, late))]
    return job.play(
        ON_TWO, *messages, (50, "worker_exited", killed), (60, "worker_exited", killed),
        (70, "worker_exited", told),
    )  # fmt: skip


def cannot_save_its_state() -> list[str]:
    late = slow("save_snapshot", 800)["save_snapshot"]
    failing = in_turn(
        "save_snapshot", fails(NO_ROUTE), fails(NO_ROUTE), None, fails(NO_ROUTE), late
    )
    job = WholeJob(failing, always("collect_log", LogCollected(stored_bytes=12)), **NOTEBOOK)
    on_a_lease = placed("nod-1", lease_id="lea-1")
    return job.play((5, "placed", on_a_lease), (2500, "stop", NIGHT))


def is_stopped_before_it_has_run() -> list[str]:
    job = WholeJob(slow("stage_worker", 600), **NOTEBOOK)
    return job.play(ON_ONE, (60, "stop", NIGHT), (100, "cancel", ASKED))
