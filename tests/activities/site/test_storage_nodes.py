"""Storage nodes over a real sshd: who is let in at a cache, and how a new one is filled."""

import os
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from activities.agent.cache.client import ask, has_same_index
from activities.secrets.cache_certificates import cache_token, region_authority
from activities.site.nodes import prepare_node
from activities.site.region_cache import fill_cache
from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.storage.names import code_name
from activities.storage.run_specs import RunSpec, seal_run_spec
from tests.activities.agent.agent_process import spec
from tests.activities.archives import archive, file
from tests.activities.site.test_contents import Wire, dataset, stage_on, store, wire
from tests.activities.site.test_region_cache import Region, machines, region
from tests.activities.sites import REGION, isolated, name_on
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.regions import CacheAddress
from workflows.effects.jobs import StageWorker, StartWorker
from workflows.effects.nodes import PrepareNode
from workflows.effects.regions import CacheFilled, FillCache

__all__ = ["machines", "region", "wire"]


class Successor:
    """The machine whose cache takes the place of that of the region's storage node."""

    def __init__(self, region: Region, number: int) -> None:
        self.region, self.agent = region, region.machines[number]
        there = {"node_id": f"nod-s{number}", "root": str(self.agent.root), "leased": True}
        self.node: NodeAddress = region.site.node.model_copy(update=there)

    async def serve(self) -> None:
        command = PrepareNode(node=self.node, exclusive=False, serves_cache=True)
        prepared = (await self.region.site.do(prepare_node, command)).preparation
        assert prepared.cache_is_secure, prepared.no_cache_reason
        self.address = str(prepared.cache)

    async def fill(self) -> CacheFilled:
        cache = self.region.cache
        source = CacheAddress(
            node_id=cache.node.node_id, address=cache.address, is_secure=cache.is_secure
        )
        command = FillCache(node=self.node, source=source)
        filled: CacheFilled = await self.region.site.do(fill_cache, command)
        return filled

    def kept(self) -> dict[str, bytes]:
        return kept_in(self.agent.root)


def kept_in(root: Path) -> dict[str, bytes]:
    cache = root / "cache"
    files = [path for kind in cache.iterdir() if kind.is_dir() for path in kind.iterdir()]
    return {str(path.relative_to(cache)): path.read_bytes() for path in files}


def access(region: Region, **changes: Any) -> dict[str, Any]:
    found = {
        "cache": region.cache.address,
        "cache_authority": region_authority(REGION),
        "cache_token": cache_token(REGION),
    }
    return {**found, **changes}


async def test_only_nodes_of_the_region_are_let_in_but_for_packages(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    await region.stage(0, code, "tinything")
    size = region.site.blobs.size(code_name(code))
    with ask(access(region), f"/code/{code}", 10) as answer:
        assert len(answer.read()) == size
    stranger = access(region, cache_token=cache_token("reg-other"))
    for path in (f"/code/{code}", "/kept", "/stats", f"/parts/{code}"):
        for asker in (stranger, access(region, cache_token=None)):
            with pytest.raises(HTTPError, match="401"):
                ask(asker, path, 10)
    with ask(access(region, cache_token=None), "/simple/tinything/", 10) as page:
        assert b"tinything" in page.read()


async def test_a_cache_speaks_tls_with_its_own_regions_certificate_alone(region: Region) -> None:
    with pytest.raises(URLError) as refused:
        ask(access(region, cache_authority=region_authority("reg-other")), "/stats", 10)
    assert isinstance(refused.value.reason, ssl.SSLCertVerificationError)
    with pytest.raises(OSError, match=r"(Remote end closed|Connection reset|\[Errno)"):
        ask({"cache": region.cache.address}, "/stats", 10)
    identity = region.site.agent.root / "cache-identity.pem"
    assert identity.stat().st_mode & 0o777 == 0o600


async def test_the_new_cache_has_all_that_the_old_one_had_and_when_it_was_used(
    region: Region, tmp_path: Path
) -> None:
    code, content = region.upload(tmp_path), dataset(store(region.site))
    await region.stage(0, code, "tinything")
    await stage_on(region, 0, "job-m7", content)
    old = region.site.agent.root
    unused = next((old / "cache" / "parts").iterdir())
    long_ago = time.time() - 9000
    os.utime(unused, (long_ago, long_ago))
    new = Successor(region, 1)
    await new.serve()
    filled = await new.fill()
    assert (filled.left_files, filled.reason) == (0, "")
    assert new.kept() == kept_in(old)
    assert filled.bytes == sum(map(len, new.kept().values()))
    copy = new.agent.root / "cache" / "parts" / unused.name
    assert abs(copy.stat().st_mtime - long_ago) < 60
    assert (await new.fill()).files == 0


async def test_a_fill_goes_on_with_what_is_left_when_the_old_cache_comes_back(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    await region.stage(0, code)
    new = Successor(region, 1)
    await new.serve()
    whole, region.cache = region.cache, region.cache.model_copy(update={"address": "127.0.0.1:1"})
    away = await new.fill()
    assert (away.files, away.left_files) == (0, 1)
    assert "refused" in away.reason
    region.cache = whole
    assert (await new.fill()).files == 1
    assert new.kept() == kept_in(region.site.agent.root)


async def test_what_is_spoilt_in_the_old_cache_does_not_come_to_the_new_one(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    await region.stage(0, code)
    region.kept("code")[0].write_bytes(b"something else")
    new = Successor(region, 1)
    await new.serve()
    filled = await new.fill()
    assert (filled.files, filled.left_files, filled.reason) == (0, 0, "")
    assert new.kept() == {}


async def test_an_input_comes_once_to_the_region_and_from_there_to_each_run(
    region: Region, wire: Wire, tmp_path: Path
) -> None:
    path, sha256 = archive(tmp_path, file("words", b"of the input"))
    region.site.blobs.put_file(code_name(sha256), path)
    for number in (0, 1):
        machine, job = region.machines[number], f"job-i{number}"
        there = {"node_id": f"nod-m{number}", "root": str(machine.root)}
        node = region.site.node.model_copy(update=there)
        machine.named = partial(name_on, node)
        run = run_id(job, 0, 1)
        order = RunSpec(
            run_id=run,
            command='cat "$BASELOAD_INPUT/words"',
            input_sha256=sha256,
            disk_size_gb=0,
            isolation=isolated(node),
            cache=region.cache,
        )
        command = StageWorker(
            node=node,
            run_id=run,
            run_spec=seal_run_spec(job, 1, 0, REGION, order),
            assignment=WorkerAssignment(worker=0, node=node),
        )
        await region.site.do(stage_worker, command)
        await region.site.do(start_worker, StartWorker(node=node, run_id=run))
        assert machine.exit_of(run)["exit_code"] == 0
        assert machine.path(run, "log").read_bytes() == b"of the input"
        region.kept("code")[0].write_bytes(b"odd")  # It is found, and brought anew.
    assert "put_input" not in wire.sent
    assert set(region.brought) == {str(region.site.agent.root)}


@pytest.mark.parametrize("is_same", [True, False])
async def test_packages_of_an_own_machine_come_through_the_cache_of_the_same_index_alone(
    region: Region, is_same: bool
) -> None:
    machine = region.machines[0]
    own = region.index.url if is_same else region.index.url + "/"
    machine.environment = {**os.environ, "PIP_INDEX_URL": own}
    machine.call(
        "stage",
        run_id="job-index-0-1",
        python_packages=["tinything"],
        owned=True,
        cache_same_index=True,
        spec=spec("true"),
        **access(region),
    )
    assert bool(region.stats().get("pages_served")) is is_same
    assert region.index.files_asked()


async def test_a_cache_that_is_away_or_refuses_is_not_asked_for_packages(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", region.index.url)
    assert has_same_index(access(region))
    assert not has_same_index(access(region, cache_token=cache_token("reg-other")))
    assert not has_same_index(access(region, cache="127.0.0.1:1"))
