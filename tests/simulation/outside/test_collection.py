"""What is stored of runs, and when nothing is."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.behaviour import Behaviour
from tests.simulation.outside.own_site import NEXT, RUN, Site
from workflows.effects import jobs


def test_a_state_snapshot_goes_on_where_the_earlier_attempt_had_come() -> None:
    site = Site(Behaviour(100.0, saves_state=True))
    site.run()
    site.temporal.play(65)
    save = jobs.SaveSnapshot(node=site.node, run_id=RUN, at=site.temporal.now())
    assert site.do("save_snapshot", save).outcome is jobs.SnapshotOutcome.SAVED
    site.end()
    staged = site.stage(NEXT, restores_state=True)
    assert staged.state_saved_at == save.at

    site.do("start_worker", jobs.StartWorker(node=site.node, run_id=NEXT))
    site.temporal.play(41)
    assert site.status(NEXT).exit.succeeded


def test_an_output_that_is_stored_is_not_stored_again() -> None:
    site = Site()
    site.run()
    site.temporal.play(61)
    command = jobs.StoreOutput(node=site.node, run_id=RUN)
    stored = site.do("store_output", command)
    site.machine.be_unreachable(1000)

    assert site.do("store_output", command).stored_bytes == stored.stored_bytes
    site.world.discard("job-1", "outputs")
    with pytest.raises(ApplicationError):
        site.do("store_output", command)


def test_a_transfer_that_is_cut_off_stores_nothing() -> None:
    site = Site()
    site.run()
    call = site.begin("store_output", jobs.StoreOutput(node=site.node, run_id=RUN))
    call.cut_off()
    site.temporal.play(1000)

    assert not site.world.store.names("outputs/job-1")


def test_the_store_refuses_everything_while_it_is_away() -> None:
    site = Site()
    command = site.staging()
    site.world.strike("store_away", seconds=100)
    with pytest.raises(ApplicationError, match="does not answer"):
        site.do("stage_worker", command)
    site.world.strike("heal")
    site.do("stage_worker", command)
