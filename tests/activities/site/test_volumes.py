"""Volumes that runs write to, over a real sshd: opened, stored, and staged again."""

import json
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.site.volumes import store_volume
from activities.storage.contents import ContentReader, ContentWriter, manifest_of
from activities.storage.names import volume_contents_of, volume_place
from activities.storage.run_specs import RunContent, RunSpec, seal_run_spec
from tests.activities.artifacts.artifact_rows import files_of
from tests.activities.contents import tar_of
from tests.activities.rows import NOW
from tests.activities.sites import REGION, Site, isolated
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole, Content
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.effects.jobs import StageWorker, StartWorker, WorkerStaged
from workflows.effects.volumes import StoreVolume, VolumeStored

VOLUME = "vol-01jd0000000000000000000000"
JOB = "job-v1"
RUN = run_id(JOB, 0, 1)
WRITE = 'cd "$BASELOAD_VOLUMES/notes" && cat old.txt && echo new > new.txt'


def sealed(site: Site, command: str = WRITE, most_bytes: int | None = None) -> str:
    """A run spec of a run that writes to a volume with one file."""
    writer = ContentWriter(site.blobs, VOLUME, "test")
    writer.write(tar_of(("old.txt", b"old\n")))
    content = RunContent(
        artifact_id=VOLUME,
        role=ArtifactRole.VOLUME_WRITER,
        name="notes",
        content=writer.finish(1, 4),
        most_bytes=most_bytes,
    )
    order = RunSpec(
        run_id=RUN,
        command=command,
        contents=(content,),
        disk_size_gb=0,
        isolation=isolated(site.node),
    )
    return seal_run_spec(JOB, 1, 0, REGION, order)


async def stage(site: Site, place: str) -> WorkerStaged:
    assignment = WorkerAssignment(worker=0, node=site.node)
    command = StageWorker(node=site.node, run_id=RUN, run_spec=place, assignment=assignment)
    return await site.do(stage_worker, command)


async def store(site: Site, mark: str = "", later_s: int = 0) -> VolumeStored:
    at = NOW + timedelta(seconds=later_s)
    command = StoreVolume(node=site.node, run_id=RUN, volume_id=VOLUME, at=at, last_mark=mark)
    return await site.do(store_volume, command)


def files(site: Site, stored: VolumeStored) -> dict[str, bytes]:
    """The files of what is stored, each part checked."""
    assert stored.place is not None
    assert isinstance(stored.content, Content)
    place = volume_place(VOLUME, stored.place)
    manifest = manifest_of(site.blobs, place, stored.content.sha256)
    return files_of(ContentReader(site.blobs, place, manifest).read())


async def test_what_a_run_has_written_is_stored_beside_the_content_and_once(site: Site) -> None:
    marks = (await stage(site, sealed(site))).volume_marks
    unchanged = await store(site, marks[VOLUME])
    assert (unchanged.mark, unchanged.place) == (marks[VOLUME], None)
    await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    assert site.agent.exit_of(RUN)["exit_code"] == 0
    first = await store(site, marks[VOLUME])
    assert files(site, first) == {"old.txt": b"old\n", "new.txt": b"new\n"}
    assert first.content is not None
    assert (first.content.file_count, first.content.unpacked_bytes) == (2, 8)
    again = await store(site, later_s=1)
    assert files(site, again) == files(site, first)
    assert again.place is not None
    assert first.place is not None
    assert again.place > first.place
    assert (await store(site, first.mark)).place is None
    kept = site.blobs.names(volume_contents_of(VOLUME))
    assert not [name for name in kept if name.endswith("packed.tar.gz")]


@pytest.mark.parametrize("most_bytes", [6, 0])
async def test_a_volume_that_has_grown_too_large_is_refused_and_leaves_nothing(
    site: Site, most_bytes: int
) -> None:
    """Also of an account that has no room at all."""
    await stage(site, sealed(site, most_bytes=most_bytes))
    await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    site.agent.exit_of(RUN)
    words = f"has 8 bytes in 2 files, at most {most_bytes} "
    with pytest.raises(ApplicationError, match=words) as refused:
        await store(site)
    assert refused.value.type == errors.WORK_REFUSED
    assert site.blobs.names(volume_contents_of(VOLUME)) == []


async def test_a_run_does_not_write_to_a_volume_that_its_run_spec_does_not_name(
    site: Site,
) -> None:
    await stage(site, sealed(site))
    other = StoreVolume(
        node=site.node, run_id=RUN, volume_id=VOLUME[:-1] + "1", at=NOW, last_mark=""
    )
    with pytest.raises(ApplicationError, match="does not write to vol-") as refused:
        await site.do(store_volume, other)
    assert refused.value.type == errors.NOT_FOUND


async def test_a_run_that_a_power_cut_has_taken_its_volume_from_is_staged_again(
    site: Site,
) -> None:
    place = sealed(site)
    await stage(site, place)
    opened = site.agent.path(RUN, "volumes.json")
    opened.write_text(json.dumps({"notes": "another boot"}))
    start = StartWorker(node=site.node, run_id=RUN)
    with pytest.raises(ApplicationError, match="is not on this node") as missing:
        await site.do(start_worker, start)
    assert missing.value.type == errors.CONTENT_MISSING
    await stage(site, place)
    await site.do(start_worker, start)
    assert site.agent.exit_of(RUN)["exit_code"] == 0
