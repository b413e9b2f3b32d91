"""Calls that end machines, while as many polls wait for their turn as may."""

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db.session import Database
from activities.providers.json_api import JsonApi
from activities.providers.machines import describe_machine, terminate_machine
from activities.providers.vastai.driver import VastMachines
from activities.providers.vastai.limits import LONGEST_WAIT_S, PAUSES_S, Limiter
from activities.providers.vastai.session import VastSession
from tests.activities.providers.kinds import kind_with
from tests.activities.providers.vastai.test_driver_contract import OFFER
from tests.doubles.vastai.double import API_KEY, VastDouble
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.effects.machines import DescribeMachine, TerminateMachine

NAME = {
    "lease_id": "lea-1",
    "provider_id": "prv-01abc",
    "provider_kind": ProviderKind.VASTAI,
    "machine_name": "baseload-lea-1",
}
SPEC = MachineSpec(lifetime_s=3600, tags={"region": "reg-1"}, image="image:1", disk_size_gb=20)


async def test_a_machine_ends_although_polls_have_taken_all_turns(
    vastai: VastDouble,
    migrated: Database,
) -> None:
    limiter = Limiter(vastai.clock.now, vastai.clock.advance)
    api = JsonApi(vastai.url, API_KEY)
    machines = VastMachines(VastSession(api, limiter), "prv-01abc")
    machines.create("baseload-lea-1", OFFER, SPEC)
    limiter.sleep = lambda _: None  # Others wait in their threads.
    for _ in range(int(LONGEST_WAIT_S / PAUSES_S["list"])):
        limiter.wait("list")
    limiter.sleep = vastai.clock.advance
    environment = ActivityEnvironment()
    with kind_with(ProviderKind.VASTAI, driver=lambda _: machines):
        with pytest.raises(ApplicationError, match="until the next call may be made"):
            await environment.run(describe_machine, DescribeMachine(**NAME))
        assert len(vastai.instances.by_id) == 1
        gone = await environment.run(terminate_machine, TerminateMachine(**NAME))
    assert gone.state is MachineState.GONE
    assert vastai.instances.by_id == {}
    api.close()
