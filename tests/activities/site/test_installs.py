"""What a run may install on its node, as it was sealed."""

from activities.site.staging import stage_worker
from tests.activities.site.test_runs import RUN, order, refusal
from tests.activities.sites import Site, isolated
from workflows.contracts import errors


async def test_what_is_sealed_decides_what_a_run_may_install(site: Site) -> None:
    theirs = isolated(site.node).model_copy(update={"owned": False, "allows_apt_packages": False})
    command = order(site, "true", apt_packages=("baseload-made-up",), isolation=theirs)
    found = await refusal(site, command)
    assert (found.type, found.details) == (errors.WORK_REFUSED, ({"code": "apt-not-allowed"},))
    assert "baseload-made-up" in str(found)
    assert not site.agent.path(RUN, "work").exists()
    await site.do(stage_worker, order(site, "true", isolation=theirs))
