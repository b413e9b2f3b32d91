"""Volumes through the whole stack: written by one notebook at a time, read, and copied."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import pytest

from tests.e2e.platform import Platform, Refused, Site
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
WRITE = 'cat "$BASELOAD_VOLUMES/notes/mine"; echo "$NAME" >> "$BASELOAD_VOLUMES/notes/mine"; '
STAY = "echo begun; sleep 5042"


class Volume:
    """A volume, and notebooks on a machine that have it."""

    def __init__(self, platform: Platform, region_id: str) -> None:
        self.platform, self.region_id = platform, region_id
        found = platform.post("/v1/volumes", {"name": "notes", "source": {"type": "empty"}})
        self.id = found["id"]
        self.path = f"/v1/volumes/{self.id}"
        self.ports = iter(range(8888, 8898))
        platform.until_status(self.path, "ready")

    def notebook(self, access: str, command: str, name: str) -> str:
        """Submit a notebook with the volume. The path of it."""
        return self.platform.job(
            command,
            self.region_id,
            name=name,
            type="notebook",
            port=next(self.ports),
            environment={"variables": {"NAME": name}},
            data={"volumes": [{"id": self.id, "access": access}]},
        )


@pytest.fixture
def volume(platform: Platform, lab: Lab, make_site: Callable[..., Site]) -> Volume:
    site = make_site()
    site.join(lab.add("notes"))
    return Volume(platform, site.region_id)


def files_of(platform: Platform, path: str) -> dict[str, bytes]:
    """The files of an artifact, exported."""
    content = platform.ask("GET", f"{path}/content").content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {each.name: archive.extractfile(each) for each in archive if each.isreg()}
        return {name: file.read() for name, file in found.items() if file is not None}


def begins(platform: Platform, job: str) -> None:
    platform.until_status(job, "running")
    wait_until(lambda: "begun" in platform.log(job), "its command has written")


def test_a_volume_is_written_by_one_notebook_after_the_other_and_read_by_many(
    platform: Platform, volume: Volume
) -> None:
    path = volume.path
    first = volume.notebook("write", WRITE + STAY, "first")
    begins(platform, first)
    assert platform.get(path)["holders"] == [
        {"job_id": first.rpartition("/")[2], "access": "write"}
    ]
    second = volume.notebook("write", WRITE + STAY, "second")
    refusals = platform.until(
        second, lambda found: bool(found["placement_refusals"]), "it is told why"
    )
    (refusal,) = refusals["placement_refusals"]
    assert refusal["code"] == "volume"
    assert "job first" in refusal["detail"]
    with pytest.raises(Refused, match="is used by"):
        platform.ask("DELETE", path)

    platform.post(f"{first}/stop")
    platform.until_status(first, "stopped")
    begins(platform, second)
    assert "first" in platform.log(second), "it has not found what the first one wrote"
    platform.post(f"{second}/cancel")
    platform.until_status(second, "canceled")
    assert files_of(platform, path) == {"mine": b"first\nsecond\n"}
    assert platform.get(path)["written_by"] == second.rpartition("/")[2]
    assert "job.volume-stored" in platform.events(second)

    source = {"type": "artifact", "artifact_id": volume.id}
    made = platform.post("/v1/datasets", {"name": "day-1", "source": source})
    platform.until_status(f"/v1/datasets/{made['id']}", "ready")
    read = (
        'cat "$BASELOAD_VOLUMES/notes/mine"; touch "$BASELOAD_VOLUMES/notes/new" || echo refused; '
    )
    readers = [volume.notebook("read", read + STAY, f"reader{number}") for number in range(2)]
    for reader in readers:
        begins(platform, reader)
        assert "first\nsecond\n" in platform.log(reader)
        assert "refused" in platform.log(reader)
    assert len(platform.get(path)["holders"]) == 2
    for reader in readers:
        platform.post(f"{reader}/cancel")
        platform.until_status(reader, "canceled")
    platform.post(f"{first}/cancel")
    platform.until(first, lambda found: found["status"] == "canceled", "it is canceled")
    assert files_of(platform, path) == {"mine": b"first\nsecond\n"}
    assert files_of(platform, f"/v1/datasets/{made['id']}") == {"mine": b"first\nsecond\n"}
    platform.ask("DELETE", path)
    platform.until_status(path, "archived")
