"""What a node says of a run's hostname: from the run to the signal of its job."""

import asyncio
import os

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.site import job_signals
from activities.site.answers.frames import HostnameFrame
from activities.site.job_signals import JobSignals
from activities.site.signal_rates import MOST_OF_RUN_PER_MINUTE
from activities.site.staging import stage_worker
from activities.storage.run_specs import RunHostname
from tests.activities.site.test_runs import order, started
from tests.activities.site.test_watch import watched
from tests.activities.sites import Site
from tests.activities.waiting import wait_until
from workflows.contracts.errors import PROTOCOL_VIOLATION
from workflows.contracts.reservations import HostnameState, WorkerHostname

RUN = f"job-h{os.getpid()}-0-1"


def said(state: HostnameState) -> HostnameFrame:
    return HostnameFrame(run_id=RUN, hostname="web.local", state=state, message=f"it is {state}")


async def test_what_a_node_says_of_a_hostname_reaches_the_job(site: Site) -> None:
    hostname = RunHostname(reservation_id="rsv-1", hostname="web", order=1, address="192.0.2.1")
    await site.do(stage_worker, order(site, "sleep 100", hostname=hostname))
    await started(site, "sleep 100")
    async with watched(site):
        [(_, name, told)] = await wait_until(lambda: site.jobs.signals, "the news")
    assert name == "worker_hostname"
    assert isinstance(told, WorkerHostname)
    assert (told.worker, told.attempt, told.hostname) == (0, 1, "web.local")
    assert told.node_id == site.node.node_id
    # Whether this host has a link is not said here; the lab has one.
    assert told.state in (HostnameState.PUBLISHED, HostnameState.NOT_PUBLISHED)


async def test_of_what_is_said_in_quick_turns_the_last_is_signalled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_signals, "HOSTNAME_PAUSE_S", 0.2)

    async def talk() -> None:
        async with JobSignals(site.node.node_id) as signals:
            for state in (HostnameState.PUBLISHED, HostnameState.CONFLICT) * 3:
                signals.tell_hostname(RUN, said(state))
            await wait_until(lambda: site.jobs.signals, "the first")
            for state in (HostnameState.PUBLISHED, HostnameState.NOT_PUBLISHED):
                signals.tell_hostname(RUN, said(state))
            await wait_until(lambda: len(site.jobs.signals) == 2, "the last")

    await ActivityEnvironment().run(talk)
    states = [told.state for _, _, told in site.jobs.signals]
    assert states == [HostnameState.CONFLICT, HostnameState.NOT_PUBLISHED]


async def test_a_node_that_says_ever_new_things_of_a_hostname_is_not_believed(site: Site) -> None:
    async def talk() -> None:
        async with JobSignals(site.node.node_id) as signals:
            for _ in range(MOST_OF_RUN_PER_MINUTE + 1):
                signals.tell_hostname(RUN, said(HostnameState.CONFLICT))
                await asyncio.sleep(0)

    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(talk)
    assert failed.value.type == PROTOCOL_VIOLATION
