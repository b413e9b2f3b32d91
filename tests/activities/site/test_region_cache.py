"""A region's cache on its storage node: brought there once, had from there, and never needed."""

import json
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from activities.agent.cache.client import ask
from activities.secrets.cache_certificates import cache_token, region_authority
from activities.settings import settings
from activities.site.nodes import prepare_node
from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.storage.names import code_name
from activities.storage.run_specs import RegionCache, RunSpec, seal_run_spec
from activities.transport.endpoint import NodeEndpoint
from activities.transport.ssh import NodeConnections
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.watcher import frames_of
from tests.activities.archives import archive, file
from tests.activities.package_index import PackageIndex, serving
from tests.activities.sites import REGION, Site, isolated, name_on
from tests.activities.waiting import wait_until
from tests.lab.wheels import write_wheel
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.effects.jobs import StageWorker, StartWorker
from workflows.effects.nodes import PrepareNode

CODE_BYTES = 3_000_000
IMPORT = "python3 -c 'import tinything; print(tinything.WORDS)';"
ODD = b"an archive of another job\n"


@dataclass
class Region:
    """A storage node and two machines, all behind one real sshd, with an index of packages."""

    site: Site
    index: PackageIndex
    machines: list[LocalAgent]
    cache: RegionCache
    brought: dict[str, int] = field(default_factory=dict)
    """Bytes of code that the platform has sent, by the root of who got them."""

    async def stage(self, number: int, code_sha256: str, *packages: str) -> float:
        """Stage one job on a machine; how many seconds that took."""
        machine, job = self.machines[number], f"job-m{number}"
        there = {"node_id": f"nod-m{number}", "root": str(machine.root)}
        node = self.site.node.model_copy(update=there)
        machine.named = partial(name_on, node)
        run = run_id(job, 0, 1)
        order = RunSpec(
            run_id=run,
            command=f"{IMPORT if packages else ''} wc -c < big",
            python_packages=packages,
            code_sha256=code_sha256,
            disk_size_gb=0,
            isolation=isolated(node),
            cache=self.cache,
        )
        assignment = WorkerAssignment(worker=0, node=node)
        place = seal_run_spec(job, 1, 0, REGION, order)
        command = StageWorker(node=node, run_id=run, run_spec=place, assignment=assignment)
        began = time.monotonic()
        await self.site.do(stage_worker, command)
        seconds = time.monotonic() - began
        await self.site.do(start_worker, StartWorker(node=node, run_id=run))
        assert machine.exit_of(run)["exit_code"] == 0
        return seconds

    def log(self, number: int) -> bytes:
        return self.machines[number].path(f"job-m{number}-0-1", "log").read_bytes()

    def kept(self, kind: str) -> list[Path]:
        return sorted((self.site.agent.root / "cache" / kind).iterdir())

    def stats(self) -> dict[str, int]:
        return dict(json.load(self.ask("/stats")))

    def ask(self, path: str, token: str | None = None) -> Any:
        """What the cache answers a node of its region; token: instead of the region's."""
        access = {
            "cache": self.cache.address,
            "cache_authority": region_authority(REGION),
            "cache_token": cache_token(REGION) if token is None else token,
        }
        return ask(access, path, 10)

    def upload(self, folder: Path) -> str:
        path, sha256 = archive(folder, file("big", os.urandom(CODE_BYTES)))
        self.site.blobs.put_file(code_name(sha256), path)
        return sha256


@pytest.fixture
def machines() -> Iterator[list[LocalAgent]]:
    """Two machines without a cache of pip's own."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-machines-", dir="/var/tmp"))
    folder.chmod(0o755)
    found = [LocalAgent(folder / name) for name in ("one", "two")]
    yield found
    for each in found:
        each.end_all()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def region(
    site: Site, machines: list[LocalAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Region]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "tinything", "1.0", "WORDS = 'from the index'\n")
    with serving(wheels) as index:
        monkeypatch.setenv("BASELOAD_REGION_CACHE_PORT", "0")
        monkeypatch.setenv("BASELOAD_PACKAGE_INDEX_URL", index.url)
        settings.cache_clear()
        command = PrepareNode(node=site.node, exclusive=False, serves_cache=True)
        prepared = (await site.do(prepare_node, command)).preparation
        assert prepared.cache is not None, prepared.no_cache_reason
        cache = RegionCache(
            node=site.node, address=prepared.cache, is_secure=prepared.cache_is_secure
        )
        found = Region(site, index, machines, cache)
        count_what_is_brought(found, monkeypatch)
        yield found
        site.agent.call("release")


def count_what_is_brought(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file = NodeConnections.put_file

    async def counted(
        pool: NodeConnections, address: NodeEndpoint, source: Any, *args: Any, **more: Any
    ) -> str:
        async def counting() -> AsyncIterator[bytes]:
            async for chunk in source:
                region.brought[address.root] = region.brought.get(address.root, 0) + len(chunk)
                yield chunk

        return await put_file(pool, address, counting(), *args, **more)

    monkeypatch.setattr(NodeConnections, "put_file", counted)


async def test_a_second_machine_gets_the_same_code_and_packages_from_neither_platform_nor_index(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    size = region.site.blobs.size(code_name(code))
    first_s = await region.stage(0, code, "tinything")
    assert region.brought == {str(region.site.agent.root): size}
    first_index_bytes, first_files = region.index.sent_bytes, region.index.files_asked()
    assert len(first_files) == 1
    asked = len(region.index.asked)
    second_s = await region.stage(1, code, "tinything")
    assert region.brought == {str(region.site.agent.root): size}
    assert len(region.index.asked) == asked
    assert region.log(0) == region.log(1) == f"from the index\n{CODE_BYTES}\n".encode()
    stats = region.stats()
    assert stats["file_hits"] == stats["file_misses"] == stats["pages_read"] == 1
    assert stats["pages_served"] == stats["code_hits"] == 2
    figures = {  # Seconds, bytes of code from the platform, bytes of the index.
        "first": (first_s, size, first_index_bytes),
        "second": (second_s, 0, region.index.sent_bytes - first_index_bytes),
    }
    logging.getLogger(__name__).info("%s", figures)


async def test_a_cache_that_was_killed_is_there_again_once_its_node_is_watched(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    await region.stage(0, code)
    agent = region.site.agent
    serving_now = agent.root / "cache-serving.json"
    pid = json.loads(serving_now.read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    watch = agent.begin("watch")  # Its stdin is at its end, so that it is over at once.
    watch.communicate(timeout=20)
    await wait_until(lambda: pid != json.loads(serving_now.read_text())["pid"], "another server")
    await region.stage(1, code)
    assert region.stats()["code_hits"] == 1


async def test_a_cache_that_is_killed_while_its_node_is_watched_is_soon_there_again(
    region: Region,
) -> None:
    serving_now = region.site.agent.root / "cache-serving.json"
    with frames_of(region.site.agent, "beat", cache_check_s=0.1) as beats:
        await wait_until(beats, "the node is watched")
        pid = json.loads(serving_now.read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        await wait_until(
            lambda: pid != json.loads(serving_now.read_text())["pid"], "another server"
        )
    assert json.loads(serving_now.read_text())["pid"] != pid


async def test_a_job_runs_although_neither_its_cache_nor_its_storage_node_is_there(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    away = region.site.node.model_copy(update={"port": 1})
    with serving(region.index.folder) as other:  # It knows of no code.
        region.cache = RegionCache(node=away, address=f"127.0.0.1:{other.server_port}")
        await region.stage(1, code)
    assert region.brought[str(region.machines[1].root)] == region.site.blobs.size(code_name(code))


async def test_code_that_was_spoilt_in_the_cache_is_not_unpacked_and_is_brought_anew(
    region: Region, tmp_path: Path
) -> None:
    code = region.upload(tmp_path)
    await region.stage(0, code)
    (kept,) = region.kept("code")
    whole = kept.read_bytes()
    kept.write_bytes(ODD)
    await region.stage(1, code)
    assert region.log(1) == f"{CODE_BYTES}\n".encode()
    assert kept.read_bytes() == whole
