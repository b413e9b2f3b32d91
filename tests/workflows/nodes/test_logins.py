"""A machine that is no node any more is its owner's alone again."""

from tests.workflows.conftest import Stage
from tests.workflows.nodes.test_node_lifecycle import HERE, onboarded, reaches
from workflows.contracts.removals import Removal
from workflows.nodes.node_lifecycle import NodeLifecycle


async def test_a_removed_node_lets_its_owner_in_again(stage: Stage) -> None:
    handle = await onboarded(stage)
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert stage.world.machines["nod-1"].is_released


async def test_the_owner_of_one_that_is_gone_is_told_which_file_to_delete(stage: Stage) -> None:
    handle = await onboarded(stage)
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    told = stage.world.told["nod-1"]["node.logins-closed"]
    assert "/etc/ssh/sshd_config.d/00-baseload.conf" in told


async def test_a_shared_machine_does_not_let_the_platform_in_any_more(stage: Stage) -> None:
    handle = await stage.node(exclusive=False)
    await reaches(stage, "maintenance")
    await handle.signal(NodeLifecycle.remove, Removal())
    await handle.result()
    assert stage.world.machines["nod-1"].is_released
    assert "node.logins-closed" not in stage.world.events["nod-1"]


async def test_the_owner_of_a_shared_one_that_is_gone_is_told_of_the_key_alone(
    stage: Stage,
) -> None:
    handle = await stage.node(exclusive=False)
    await reaches(stage, "maintenance")
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")
    await handle.signal(NodeLifecycle.remove, Removal())
    await handle.result()
    told = stage.world.told["nod-1"]["node.logins-closed"]
    assert "authorized_keys" in told
    assert "sshd_config" not in told


async def test_a_machine_that_has_not_joined_fails_and_is_found_when_it_has(stage: Stage) -> None:
    machine = stage.world.machines["nod-1"]
    machine.has_joined = False
    handle = await stage.node()
    await reaches(stage, "failed")
    assert "node.preparing" not in stage.world.events["nod-1"]
    machine.has_joined = True
    await stage.announce(handle, HERE)
    await reaches(stage, "maintenance")
