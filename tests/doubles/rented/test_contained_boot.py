"""Machines in namespaces: who gets in, what they show, and that nothing is left of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.doubles.rented.boot import Machine
from tests.doubles.rented.contained_boot import ContainedBoot
from tests.doubles.rented.login import HOST_KEY_BASE64, HOST_KEY_LINE, PUBLIC, said
from tests.lab.host import obstacle


@pytest.fixture
def boot() -> Iterator[ContainedBoot]:
    reason = obstacle()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    made = ContainedBoot()
    yield made
    made.close()
    assert not made.folder.exists()


def machine(number: int) -> Machine:
    env = {"BASELOAD_HOST_KEY": HOST_KEY_BASE64}
    gpus = ("RTX 4090", 2, 24_564)
    return Machine(str(number), f"m{number}", "image", env, let_in=[PUBLIC], gpus=gpus)


async def test_a_contained_machine_has_a_root_and_gpus_of_its_own(boot: ContainedBoot) -> None:
    first, second = (boot.start(machine(number)) for number in (1, 2))
    assert boot.public_key("1") == HOST_KEY_LINE
    assert await said(first.host, first.port, "touch /var/own; nvidia-smi -L | wc -l") == "2"
    assert await said(second.host, second.port, "test -e /var/own || hostname") == "rented-2"
    boot.end("1")
    with pytest.raises(ConnectionError):
        await said(first.host, first.port, "true")
    assert await said(second.host, second.port, "echo runs on") == "runs on"
