"""Every block of a node's disk, read for the model of a federated run: none ever holds it.

The node can write to that disk alone, besides memory and the accounts of the machine, and nothing
of the model is on any disk before: it is made in the memory of the test, and sent to the node
sealed. All that is written is in a block at once, so that a file is found which lives for an
instant.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.federation.sealed_models import about, new_key, seal_model
from tests.activities.agent.agent_process import LocalAgent, compiled_agent
from tests.activities.agent.test_federated_models import HASH, USES, archive, terms
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run: run as root"),
    pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="needs a disk: loop"),
]
DISK_BYTES = 1600 << 20
"""More than the free disk that a sealed model needs; what nobody writes takes no memory."""
CHUNK_BYTES = 1 << 20
WRITABLE = ("/etc", "/var/lib/baseload-accounts")
"""The accounts of the machine, which all agents share."""
COVERED = ("/tmp", "/var/tmp", "/run")
ENTER = """
for folder in $WRITABLE; do mount --bind $folder $folder; done
for folder in $COVERED; do mkdir -p $DISK$folder; chmod 1777 $DISK$folder; done
for folder in $COVERED; do mount --bind $DISK$folder $folder; done
mount -o remount,bind,ro /
touch $DISK/entered
exec sleep infinity
"""


class Disk:
    """A disk of its own, whose blocks are in memory.

    folder: where it is mounted.
    """

    def __init__(self, image: Path, folder: Path) -> None:
        self.image = image
        self.folder = folder
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        self.mount("loop,nodiscard", str(image))

    def mount(self, options: str, *image: str) -> None:
        subprocess.run(["mount", "-o", options, *image, str(self.folder)], check=True)

    def has(self, *markers: bytes) -> bool:
        """Whether any block holds one of the markers, also of files that are removed."""
        subprocess.run(["sync", "--file-system", str(self.folder)], check=True)
        longest, before = max(map(len, markers)), b""
        descriptor = os.open(self.image, os.O_RDONLY)
        try:
            for chunk in written_chunks(descriptor):
                piece = before + chunk
                if any(marker in piece for marker in markers):
                    return True
                before = piece[-longest:]
        finally:
            os.close(descriptor)
        return False

    def is_free(self) -> bool:
        """Whether it is not mounted any more, after one try to unmount it."""
        done = subprocess.run(["umount", str(self.folder)], check=False, capture_output=True)
        return done.returncode == 0


def written_chunks(descriptor: int) -> Iterator[bytes]:
    """What a sparse file has, without its holes."""
    at, size = 0, os.fstat(descriptor).st_size
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # Nothing but a hole follows.
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        while at < end:
            chunk = os.pread(descriptor, min(CHUNK_BYTES, end - at), at)
            yield chunk
            at += len(chunk)


class Bounded(LocalAgent):
    """An agent that can write to its own disk alone."""

    machine = 0

    def command(self, verb: str) -> list[str]:
        entering = ["nsenter", f"--mount=/proc/{self.machine}/ns/mnt"] if self.machine else []
        return [*entering, *super().command(verb)]


@pytest.fixture
def disk() -> Iterator[Disk]:
    folder = Path(tempfile.mkdtemp(prefix="baseload-disk-", dir="/var/lib"))
    image = Path(tempfile.mkstemp(prefix="baseload-disk-", dir="/dev/shm")[1])
    made = Disk(image, folder)
    folder.chmod(0o755)
    yield made
    wait_for(made.is_free, f"{folder} is unmounted")
    image.unlink()
    folder.rmdir()


@pytest.fixture
def bounded(disk: Disk) -> Iterator[Bounded]:
    """An agent on that disk, with the environment of runs without packages."""
    found = Bounded(disk.folder / "root")
    found.compiled.unlink()
    shutil.copytree(compiled_agent(), found.compiled)
    found.has_staged_before()
    found.call("prepare", peers=[])
    disk.mount("remount,sync")
    environment = {**os.environ, "DISK": str(disk.folder)}
    environment.update(WRITABLE=" ".join(WRITABLE), COVERED=" ".join(COVERED))
    machine = subprocess.Popen(["unshare", "--mount", "sh", "-ec", ENTER], env=environment)
    wait_for((disk.folder / "entered").exists, "the machine of the agent")
    found.machine = machine.pid
    yield found
    found.end_all()
    machine.kill()
    machine.wait()


@pytest.fixture
def marker() -> bytes:
    """What is in the weights of the model, and nowhere else."""
    return b"marker-of-the-weights-" + os.urandom(16).hex().encode()


def started(
    agent: LocalAgent, run_id: str, command: str, plain: bytes, *, is_altered: bool = False
) -> tuple[bytes, tuple[bytes, bytes]]:
    """Start a run with a model; return a part of the sealed one, and the key as it may be written.

    is_altered: whether the last piece of the sealed model was altered on its way.
    """
    key = new_key()
    sealed = b"".join(seal_model([plain], key, about("fed-1", "art-1", HASH)))
    if is_altered:
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    agent.put_input(run_id, sealed, "receive_model", sealed_bytes=len(sealed))
    agent.stage(run_id, command, user="baseload-job", federated=terms(plain))
    agent.call("start", run_id=run_id, model_key=key)
    return sealed[:64], (key.encode(), bytes.fromhex(key))


def test_what_is_written_for_an_instant_is_found_in_the_blocks(disk: Disk, marker: bytes) -> None:
    disk.mount("remount,sync")
    assert not disk.has(marker)
    file = disk.folder / "removed"
    file.write_bytes(b"x" * 5000 + marker)
    file.unlink()
    assert disk.has(b"nothing", marker)


def test_no_block_of_the_disk_ever_holds_the_model(
    bounded: Bounded, disk: Disk, marker: bytes
) -> None:
    run_id, plain = "job-feddisk-0-1", archive(marker * 100_000)
    sealed, key = started(bounded, run_id, USES + "sleep 600", plain)
    wait_for(bounded.path(run_id, "output/ready").exists, "the run has its model")
    assert disk.has(sealed), "the sealed model was on this disk"
    assert not disk.has(marker, *key), "while it runs"
    bounded.call("end", run_id=run_id, grace_s=0)
    assert not disk.has(marker, *key), "after it has ended"
    bounded.call("clean", run_ids=[run_id])
    assert not disk.has(marker, *key), "after it is removed"


def test_no_block_holds_what_was_opened_of_a_model_that_is_refused_then(
    bounded: Bounded, disk: Disk, marker: bytes
) -> None:
    run_id, plain = "job-feddiskcut-0-1", archive(marker * 100_000)
    sealed, key = started(bounded, run_id, "true", plain, is_altered=True)
    assert bounded.exit_of(run_id)["reason"] == "sealed-model"
    assert disk.has(sealed), "the sealed model was on this disk"
    assert not disk.has(marker, *key)
