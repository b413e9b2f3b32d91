"""Jobs that lose what they run on, for a while or for good."""

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from tests.transcripts.jobs.answers import in_turn, slow
from tests.transcripts.jobs.given import (
    AGAIN,
    ASKED,
    BACK,
    GONE,
    LEAVES,
    NO_ROUTE,
    NOTEBOOK,
    NOW,
    ON_ONE,
    ON_TWO,
    OUTAGE,
    address,
    exited,
    placed,
)
from tests.transcripts.jobs.whole_job import WholeJob
from tests.transcripts.whole import always, broken, fails
from workflows.contracts.errors import HOST_KEY_MISMATCH, OUTCOME_UNKNOWN, PROTOCOL_VIOLATION
from workflows.contracts.jobs import EndRequest, NodeReachable, RunReport
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import SnapshotOutcome, SnapshotSaved, WorkerStaged


def is_found_lost_by_a_poll() -> list[str]:
    report = RunReport(run_id="job-1-0-1", state=RunState.LOST, elapsed_s=7)
    job = WholeJob(always("get_run_status", report), auto_terminate=False)
    return job.play((5, "placed", placed("nod-1", ephemeral=True)))


def loses_its_machine_and_begins_again_with_its_state() -> list[str]:
    saved = WorkerStaged(state_saved_at=NOW)
    job = WholeJob(in_turn("stage_worker", None, lambda _: saved), state_interval_s=600,
                   max_restarts=1)  # fmt: skip
    gone = GONE.model_copy(update={"ended_at": job.engine.now() + timedelta(seconds=1990)})
    again = placed("nod-3", attempt=2, lease_id="lea-1")
    return job.play(
        (5, "placed", placed("nod-1", lease_id="lea-1")),
        (2000, "machine_gone", gone),
        (2100, "placed", again),
        (2500, "machine_gone", GONE.model_copy(update={"node_id": "nod-3"})),
    )


def leaves_a_node_that_ends() -> list[str]:
    job = WholeJob(state_interval_s=600)
    return job.play(
        ON_ONE,
        (100, "node_ending", LEAVES.model_copy(update={"node_id": "nod-9"})),
        (200, "node_ending", LEAVES),
        (300, "placed", AGAIN),
        (400, "worker_exited", exited(0, "nod-3", attempt=2)),
    )


def waits_for_the_end_of_a_machine_in_vain() -> list[str]:
    job = WholeJob(broken(NO_ROUTE, "end_worker"), unreachable_limit_s=900)
    return job.play(ON_ONE, (200, "node_ending", LEAVES))


def waits_for_the_end_of_a_machine() -> list[str]:
    job = WholeJob(broken(NO_ROUTE, "end_worker"), unreachable_limit_s=900)
    return job.play(ON_ONE, (200, "node_ending", LEAVES), (700, "machine_gone", GONE), most_s=900)


def is_canceled_while_it_waits_for_the_end_of_a_machine() -> list[str]:
    job = WholeJob(broken(NO_ROUTE, "end_worker"), unreachable_limit_s=900)
    return job.play(ON_ONE, (200, "node_ending", LEAVES), (700, "cancel", ASKED))


def runs_through_an_outage() -> list[str]:
    moved = NodeReachable(node_id="nod-1", node=address("nod-1", "10.0.0.9"))
    job = WholeJob(broken(NO_ROUTE, "get_run_status"))
    job.engine.later(900, job.mend)
    return job.play(
        ON_ONE,
        (100, "node_unreachable", OUTAGE),
        (1000, "node_reachable", moved),
        (1100, "worker_exited", exited(0, "nod-1")),
    )


def fails_after_an_outage_too_long() -> list[str]:
    job = WholeJob(broken(NO_ROUTE, "get_run_status"), unreachable_limit_s=900, worker_count=2)
    return job.play(ON_TWO, (100, "node_unreachable", OUTAGE))


def forgets_an_outage_of_its_staging() -> list[str]:
    unknown = ApplicationError("the connection was lost", type=OUTCOME_UNKNOWN)
    names = broken(unknown, "start_worker")
    job = WholeJob(slow("stage_worker", 60), names, unreachable_limit_s=300)
    job.engine.later(500, job.mend)
    return job.play(
        ON_ONE, (20, "node_unreachable", OUTAGE), (6000, "worker_exited", exited(0, "nod-1"))
    )


def is_killed_before_a_preemption() -> list[str]:
    job = WholeJob(state_interval_s=600)
    killed = exited(0, "nod-1", code=137)
    return job.play(
        (5, "placed", placed("nod-1", ephemeral=True)),
        (60, "worker_exited", killed),
        (75, "machine_gone", GONE),
        most_s=900,
    )


def saves_its_state_slowly() -> list[str]:
    job = WholeJob(slow("save_snapshot", 100), state_interval_s=600)
    return job.play((5, "placed", placed("nod-1", lease_id="lea-1")), most_s=6000)


def is_killed_and_saves_its_state_too_slowly() -> list[str]:
    job = WholeJob(slow("save_snapshot", 25), state_interval_s=600)
    killed = exited(0, "nod-1", code=143)
    return job.play((5, "placed", placed("nod-1", ephemeral=True)), (60, "worker_exited", killed))


def is_killed_without_a_preemption() -> list[str]:
    too_large = SnapshotSaved(
        outcome=SnapshotOutcome.TOO_LARGE, state_bytes=3 * 10**9, file_count=1, limit="1 GB"
    )
    job = WholeJob(always("save_snapshot", too_large), state_interval_s=600)
    killed = exited(0, "nod-1", code=137)
    return job.play((5, "placed", placed("nod-1", ephemeral=True)), (1000, "worker_exited", killed))


def its_node_is_removed_while_it_cannot_be_reached() -> list[str]:
    job = WholeJob(broken(NO_ROUTE, "get_run_status"))
    removed = EndRequest(
        reason="nod-1 is removed", code="node-removed", node_id="nod-1", is_gone=True
    )
    elsewhere = removed.model_copy(update={"node_id": "nod-9"})
    return job.play(
        ON_ONE, (60, "node_unreachable", OUTAGE), (90, "stop", elsewhere), (120, "stop", removed)
    )


def its_last_words_count_after_the_loss_of_its_machine() -> list[str]:
    job = WholeJob(max_restarts=0)
    return job.play(ON_ONE, (100, "worker_exited", exited(0, "nod-1")), (100, "machine_gone", GONE))


def loses_its_machine_while_it_stores() -> list[str]:
    job = WholeJob(slow("store_output", 300))
    return job.play(
        ON_ONE, (60, "worker_exited", exited(0, "nod-1")), (100, "machine_gone", GONE), most_s=900
    )


def its_command_is_lost_and_it_is_a_service() -> list[str]:
    report = RunReport(run_id="job-1-0-1", state=RunState.LOST, elapsed_s=7)
    job = WholeJob(always("get_run_status", report), **NOTEBOOK)
    return job.play(ON_ONE, (300, "node_reachable", BACK), most_s=2000)


def hears_of_outages_while_it_is_staged() -> list[str]:
    job = WholeJob(slow("stage_worker", 100), worker_count=2)
    moved = NodeReachable(node_id="nod-1", node=address("nod-1", "10.0.0.9"))
    return job.play(
        ON_TWO,
        (20, "node_unreachable", OUTAGE),
        (30, "node_unreachable", OUTAGE),
        (40, "node_reachable", BACK.model_copy(update={"node_id": "nod-2"})),
        (50, "node_reachable", moved),
        (400, "cancel", ASKED),
    )


def finds_another_machine_in_place_of_its_node() -> list[str]:
    another = ApplicationError("another key", type=HOST_KEY_MISMATCH, non_retryable=True)
    job = WholeJob(in_turn("stage_worker", fails(another), fails(another)))
    return job.play(ON_ONE, (300, "cancel", ASKED))


def is_told_lies_by_its_node() -> list[str]:
    lies = ApplicationError("no such answer", type=PROTOCOL_VIOLATION, non_retryable=True)
    names = ("start_worker", "get_run_status", "save_snapshot")
    job = WholeJob(*(in_turn(name, fails(lies)) for name in names), state_interval_s=600)
    gone = GONE.model_copy(update={"is_violation": True, "reason": "it lies"})
    told = job.play(
        (5, "placed", placed("nod-1", lease_id="lea-1")), (5000, "machine_gone", gone), most_s=5100
    )
    return [*told, *job.engine.query("node/nod-1", "heard")]


def cannot_restore_its_state() -> list[str]:
    refused = WorkerStaged(state_refused="it is of another job")
    job = WholeJob(in_turn("stage_worker", None, lambda _: refused), state_interval_s=600)
    again = placed("nod-3", attempt=2)
    return job.play(ON_ONE, (100, "node_ending", LEAVES), (200, "placed", again), most_s=300)
