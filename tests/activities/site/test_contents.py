"""Contents of artifacts on their way to nodes, over a real sshd: once, resumed, checked."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.storage import contents as stored
from activities.storage.contents import ContentWriter, manifest_of
from activities.storage.names import artifact_part_name
from activities.storage.run_specs import RegionCache, RunContent, RunSpec, seal_run_spec
from activities.transport.endpoint import NodeEndpoint
from activities.transport.ssh import NodeConnections
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.contents import tar_of
from tests.activities.site.test_region_cache import Region, machines, region
from tests.activities.sites import REGION, Site, isolated, name_on
from tests.activities.waiting import wait_until
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole, Content
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import ContentsBrought, StageWorker, StartWorker

__all__ = ["machines", "region"]

DATASET = "dat-01jd0000000000000000000000"
MODEL = "mod-01jd0000000000000000000001"
PART_BYTES = 100_000
BYTES = random.Random(7).randbytes(730_000)
READ = 'cat "$BASELOAD_DATASETS/digits/file" | sha256sum'

Change = Callable[[bytes], Awaitable[bytes]]


async def unchanged(chunk: bytes) -> bytes:
    return chunk


@dataclass
class Wire:
    """What is fed to nodes, counted and changed on its way."""

    sent: dict[str, int] = field(default_factory=dict)
    """Bytes by the verb."""
    positions: list[int] = field(default_factory=list)
    """From where each transfer went on."""
    changes: list[Change] = field(default_factory=list)
    """For the chunks of the next transfers, one each."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        feed = NodeConnections.feed

        async def counted(
            pool: NodeConnections,
            address: NodeEndpoint,
            verb: str,
            request: dict[str, Any],
            source: AsyncIterator[bytes],
            **more: Any,
        ) -> None:
            change = self.changes.pop(0) if self.changes else unchanged
            self.positions += [request["position"]] if "position" in request else []

            async def counting() -> AsyncIterator[bytes]:
                async for chunk in source:
                    changed = await change(chunk)
                    self.sent[verb] = self.sent.get(verb, 0) + len(changed)
                    yield changed

            await feed(pool, address, verb, request, counting(), **more)

        monkeypatch.setattr(NodeConnections, "feed", counted)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(stored, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(stored, "READ_BYTES", 10_000)
    found = Wire()
    found.watch(monkeypatch)
    return found


def store(site: Site, artifact_id: str = DATASET, data: bytes = BYTES) -> Content:
    """Store a content as an artifact's transfer does."""
    writer = ContentWriter(site.blobs, artifact_id, "test")
    writer.write(tar_of(("file", data)))
    return writer.finish(1, len(data))


async def stage(
    site: Site,
    job: str,
    *contents: RunContent,
    cache: RegionCache | None = None,
    node: NodeAddress | None = None,
) -> ContentsBrought:
    """Stage a job that reads its dataset; how its contents came."""
    node, run = node or site.node, run_id(job, 0, 1)
    order = RunSpec(
        run_id=run,
        command=READ,
        contents=contents,
        disk_size_gb=0,
        isolation=isolated(node),
        cache=cache,
    )
    place = seal_run_spec(job, 1, 0, REGION, order)
    assignment = WorkerAssignment(worker=0, node=node)
    command = StageWorker(node=node, run_id=run, run_spec=place, assignment=assignment)
    brought = (await site.do(stage_worker, command)).contents
    assert brought is not None
    return brought


def dataset(content: Content) -> RunContent:
    return RunContent(
        artifact_id=DATASET, role=ArtifactRole.DATASET, name="digits", content=content
    )


def model(content: Content) -> RunContent:
    return RunContent(artifact_id=MODEL, role=ArtifactRole.MODEL, name="m", content=content)


async def test_a_second_job_on_the_node_reads_what_the_first_brought(
    site: Site, wire: Wire
) -> None:
    both = (dataset(store(site)), model(store(site, MODEL, BYTES[::-1])))
    size = sum(each.content.size_bytes for each in both)
    first = await stage(site, "job-m1", *both)
    assert (first.bytes, first.fetched_bytes) == (size, size)
    sent = dict(wire.sent)
    second = await stage(site, "job-m2", *both)
    assert (second.bytes, second.fetched_bytes) == (size, 0)
    assert wire.sent == sent
    for job in ("job-m1", "job-m2"):
        await site.do(start_worker, StartWorker(node=site.node, run_id=run_id(job, 0, 1)))
        assert site.agent.exit_of(run_id(job, 0, 1))["exit_code"] == 0
    logs = {site.agent.path(run_id(job, 0, 1), "log").read_text() for job in ("job-m1", "job-m2")}
    assert len(logs) == 1
    assert BYTES.hex()[:200] not in "".join(site.told)


async def test_two_jobs_that_come_at_once_make_one_transfer(site: Site, wire: Wire) -> None:
    content = dataset(store(site))
    jobs = (stage(site, "job-m1", content), stage(site, "job-m2", content))
    brought = await asyncio.gather(*jobs)
    size = content.content.size_bytes
    assert sorted(each.fetched_bytes for each in brought) == [0, size]
    assert wire.positions == [0]


async def test_a_transfer_goes_on_at_the_byte_where_its_connection_was_lost(
    site: Site, wire: Wire
) -> None:
    content = dataset(store(site))
    left = [25]
    begun = site.agent.root / "contents" / f".arriving-{content.content.sha256}" / "begun"

    async def cut(chunk: bytes) -> bytes:
        left[0] -= 1
        if not left[0]:
            await wait_until(begun.exists, "some of it has arrived")
            raise ConnectionError("the cable is out")
        return chunk

    wire.changes = [cut]
    with pytest.raises(ConnectionError):
        await stage(site, "job-m1", content)
    await wait_until(lambda: not _is_held(site, content), "the transfer has ended on the node")
    brought = await stage(site, "job-m1", content)
    assert wire.positions[0] == 0
    assert 0 < wire.positions[1] < content.content.size_bytes
    assert brought.fetched_bytes == content.content.size_bytes - wire.positions[1]


def _is_held(site: Site, content: RunContent) -> bool:
    sha256 = content.content.sha256
    asked = {"sha256": sha256, "size_bytes": content.content.size_bytes, "file_count": 1}
    answer = site.agent.call("find_contents", run_id="job-look-0-1", contents=[asked])
    return not answer["contents"][0]["has_manifest"]


async def test_bytes_that_change_on_the_wire_are_sent_again_and_nothing_else(
    site: Site, wire: Wire
) -> None:
    content = dataset(store(site))
    count = [0]

    async def spoil(chunk: bytes) -> bytes:
        count[0] += 1
        return bytes([chunk[0] ^ 1]) + chunk[1:] if count[0] == 35 else chunk

    wire.changes = [spoil]
    brought = await stage(site, "job-m1", content)
    assert wire.positions == [0, 3 * PART_BYTES]
    assert brought.fetched_bytes <= 2 * content.content.size_bytes
    file = site.agent.root / "contents" / content.content.sha256 / "file"
    assert file.read_bytes() == BYTES


async def test_a_part_that_is_damaged_in_the_store_is_named(site: Site, wire: Wire) -> None:
    content = dataset(store(site))
    manifest = manifest_of(site.blobs, DATASET, content.content.sha256)
    part = manifest.parts[4]
    site.blobs.put(artifact_part_name(DATASET, part.sha256), b"x" * part.size_bytes)
    with pytest.raises(ApplicationError, match=r"dataset dat-.*: part 5 of 8 is damaged") as found:
        await stage(site, "job-m1", content)
    assert found.value.type == errors.REFUSED
    assert wire.positions == [0]


async def test_contents_that_are_not_stored_any_more_are_named(site: Site, wire: Wire) -> None:
    content = dataset(store(site))
    stored.remove_content(site.blobs, DATASET)
    with pytest.raises(ApplicationError, match=f"dataset {DATASET}: its content is not") as found:
        await stage(site, "job-m1", content)
    assert found.value.type == errors.NOT_FOUND
    assert wire.sent == {}


async def test_a_node_without_room_says_what_was_asked_and_what_is_free(
    site: Site, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_NODE_CONTENTS_MAX_BYTES", "1000000")
    settings.cache_clear()
    with pytest.raises(ApplicationError, match=r"asked 0\.3\d GB for contents, .* free") as found:
        await stage(site, "job-m1", dataset(store(site)))
    assert found.value.type == errors.WORK_REFUSED
    assert wire.sent == {}


# ── the region's cache ──────────────────────────────────────────────────────────────────────────


async def stage_on(region: Region, number: int, job: str, content: RunContent) -> LocalAgent:
    """Stage a job on a machine of a region with a cache, and run it."""
    machine = region.machines[number]
    there = {"node_id": f"nod-m{number}", "root": str(machine.root)}
    node = region.site.node.model_copy(update=there)
    machine.named = partial(name_on, node)
    await stage(region.site, job, content, cache=region.cache, node=node)
    await region.site.do(start_worker, StartWorker(node=node, run_id=run_id(job, 0, 1)))
    assert machine.exit_of(run_id(job, 0, 1))["exit_code"] == 0
    return machine


def data_on(machine: LocalAgent, content: RunContent) -> bytes:
    return (machine.root / "contents" / content.content.sha256 / "file").read_bytes()


async def test_a_region_is_sent_a_content_once_and_its_machines_fetch_it_there(
    region: Region, wire: Wire
) -> None:
    content = dataset(store(region.site))
    machine = await stage_on(region, 0, "job-m1", content)
    assert data_on(machine, content) == BYTES
    assert wire.sent == {"keep_parts": content.content.size_bytes}
    assert data_on(await stage_on(region, 1, "job-m2", content), content) == BYTES
    assert wire.sent == {"keep_parts": content.content.size_bytes}
    hashes = {part.sha256 for part in manifest_of(
        region.site.blobs, DATASET, content.content.sha256
    ).parts}  # fmt: skip
    assert not hashes & {path.name for path in region.kept("parts")}


async def test_two_machines_that_come_at_once_fill_the_cache_once(
    region: Region, wire: Wire
) -> None:
    content = dataset(store(region.site))
    await asyncio.gather(
        stage_on(region, 0, "job-m1", content), stage_on(region, 1, "job-m2", content)
    )
    assert wire.sent == {"keep_parts": content.content.size_bytes}


async def test_a_part_that_was_spoilt_in_the_cache_is_replaced_there(
    region: Region, wire: Wire
) -> None:
    content = dataset(store(region.site))
    await stage_on(region, 0, "job-m1", content)
    spoilt = region.kept("parts")[0]
    whole = spoilt.read_bytes()
    spoilt.write_bytes(bytes(len(whole)))
    assert data_on(await stage_on(region, 1, "job-m2", content), content) == BYTES
    assert spoilt.read_bytes() == whole
    assert wire.sent == {"keep_parts": content.content.size_bytes + len(whole)}


async def test_a_content_comes_without_the_cache_while_that_is_away(
    region: Region, wire: Wire
) -> None:
    content = dataset(store(region.site))
    away = region.site.node.model_copy(update={"port": 1})
    region.cache = RegionCache(node=away, address="127.0.0.1:1")
    assert data_on(await stage_on(region, 0, "job-m1", content), content) == BYTES
    assert wire.sent.keys() == {"receive_content"}


async def test_what_came_from_the_cache_stays_where_it_is_lost_meanwhile(
    region: Region, wire: Wire
) -> None:
    """The cache has the first parts alone, and its storage node is away."""
    content = dataset(store(region.site))
    await stage_on(region, 0, "job-m1", content)
    names = sorted(region.kept("parts"), key=lambda path: path.stat().st_mtime)
    for path in names[3:]:
        path.unlink()
    before = json.dumps(wire.sent)
    away = region.site.node.model_copy(update={"port": 1})
    region.cache = region.cache.model_copy(update={"node": away})
    assert data_on(await stage_on(region, 1, "job-m2", content), content) == BYTES
    assert json.loads(before) == {"keep_parts": content.content.size_bytes}
    assert wire.sent["receive_content"] < content.content.size_bytes


def test_the_agents_folder_of_contents_is_closed(site: Site) -> None:
    site.agent.call("find_contents", run_id="job-m1-0-1", contents=[])
    assert Path(site.agent.root / "contents").stat().st_mode & 0o777 == 0o700


async def test_a_cache_without_room_is_said_and_the_platform_sends_what_it_lacks(
    region: Region, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []

    async def tell(workflow_id: str, signal: str, *_: object) -> bool:
        told.append((workflow_id, signal))
        return True

    monkeypatch.setattr("activities.site.region_cache.tell", tell)
    configuration = region.site.agent.root / "cache.json"
    found = json.loads(configuration.read_text())
    configuration.write_text(json.dumps({**found, "max_bytes": 3 * PART_BYTES + 1}))
    content = dataset(store(region.site))
    assert data_on(await stage_on(region, 0, "job-m1", content), content) == BYTES
    assert set(told) == {("node/nod-1", "refresh")}
    assert 0 < len(region.kept("parts")) <= 3
    answer = region.site.agent.call("orphans", live=[], among=[], leaving=[], owner="x")
    assert "beside what jobs need now" in answer["cache_full"]
