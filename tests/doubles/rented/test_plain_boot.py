"""A machine that stands still: it takes connections, and neither answers nor works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.doubles.rented.boot import Machine
from tests.doubles.rented.login import HOST_KEY_BASE64, PUBLIC, said
from tests.doubles.rented.plain_boot import PlainBoot
from tests.waiting import eventually

MACHINE = Machine("m-1", "one", "", {"KEY": HOST_KEY_BASE64}, let_in=[PUBLIC])
SILENCE_S = 0.3


@pytest.fixture
def boot() -> Iterator[PlainBoot]:
    made = PlainBoot()
    yield made
    made.close()


async def test_a_machine_that_stands_still_takes_connections_and_says_nothing(
    boot: PlainBoot,
) -> None:
    at = await asyncio.to_thread(boot.start, MACHINE)
    assert await said(at.host, at.port, "echo up") == "up"
    assert await asyncio.to_thread(boot.stand_still, MACHINE.id)
    reader, writer = await asyncio.open_connection(at.host, at.port)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), SILENCE_S)
    assert not await asyncio.to_thread(boot.stand_still, MACHINE.id), "it does already"
    writer.close()
    await asyncio.to_thread(boot.go_on, MACHINE.id)
    assert await said(at.host, at.port, "echo up") == "up"


async def test_a_command_of_a_machine_that_stood_still_goes_on(boot: PlainBoot) -> None:
    at = await asyncio.to_thread(boot.start, MACHINE)
    slow = asyncio.create_task(said(at.host, at.port, "touch begun; sleep 0.2; echo done"))
    begun = boot.folder / MACHINE.id / "begun"
    await eventually(begun.exists, "the command has begun")
    await asyncio.to_thread(boot.stand_still, MACHINE.id)
    done, _ = await asyncio.wait([slow], timeout=2 * SILENCE_S)
    assert not done
    await asyncio.to_thread(boot.go_on, MACHINE.id)
    assert await slow == "done"
