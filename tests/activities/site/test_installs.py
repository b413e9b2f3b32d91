"""What a run may install on its node, as it was sealed."""

import os

import pytest

from activities.site.staging import stage_worker
from tests.activities.agent.debian import DebianRepository, is_on_this_machine, repository
from tests.activities.site.test_runs import RUN, collected, exited, order, started
from tests.activities.sites import Site, isolated

__all__ = ["repository"]
TOOL = "baseload-test-tool"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages: run as root")
async def test_what_is_sealed_keeps_the_packages_of_a_run_off_its_node(
    site: Site, repository: DebianRepository
) -> None:
    repository.add(TOOL, {f"/usr/bin/{TOOL}": f"#!/bin/sh\necho {TOOL} runs\n"})
    site.sshd.stop()
    site.sshd.variables = f"APT_CONFIG={repository.environment['APT_CONFIG']}"
    site.sshd.start()
    for owned in (False, True):
        sealed = {"owned": owned, "allows_apt_packages": False}
        isolation = isolated(site.node).model_copy(update=sealed)
        asked = order(site, TOOL, apt_packages=(TOOL,), isolation=isolation)
        await site.do(stage_worker, asked)
        assert not is_on_this_machine(TOOL)
    await started(site, TOOL, apt_packages=(TOOL,), isolation=isolation)
    assert (await exited(site)).exit is not None
    assert await collected(site) == f"{TOOL} runs\n".encode()
    assert site.agent.document(RUN, "spec.json")["system_layer"]
