"""Datasets on their way to a node over a real sshd, beside `scp` and `tar | ssh tar`.

The node is one that the platform watches: its connection is open, and its agent compiled. What was
brought is moved aside between two measurements, and not deleted, because ext4 is slow to make files
where it has just deleted others. `scp` and `tar` check nothing, and `scp` unpacks nothing.
"""

import asyncio
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.testing import ActivityEnvironment

from activities.secrets.region_keys import region_key_line
from activities.settings import settings
from activities.site.contents import bring_contents
from activities.site.node_client import NodeClient, close_connections
from activities.storage.blobs import blob_store
from activities.storage.contents import ContentWriter, copy_parts
from activities.storage.run_specs import RunContent
from tests.activities.sites import REGION, join
from tests.activities.sshd import Sshd
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms
from tests.waiting import eventually
from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.nodes import NodeAddress

SCALE = float(os.environ.get("BASELOAD_BENCH_SCALE", "1"))
LARGE_BYTES = int(10**9 * SCALE)
SMALL_FILES = int(10_000 * SCALE)
SMALL_BYTES = 4096
RUNS = 3
DATASET = "dat-01jd0000000000000000000000"
SSH_OPTIONS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-q")


@dataclass
class Lab:
    """A node behind a real sshd, and a store with datasets."""

    sshd: Sshd
    folder: Path
    node: NodeAddress
    runner: asyncio.Runner
    count: int = 0

    def stored(self, files: Path) -> RunContent:
        """A folder of files as a dataset in the store."""
        tar = self.folder / "stream.tar"
        with tarfile.open(tar, "w") as archive:
            archive.add(files, ".")
        store = blob_store(settings().storage)
        writer = ContentWriter(store, DATASET, files.name)
        with tar.open("rb") as stream:
            copy_parts(stream, writer)
        found = [path for path in files.rglob("*") if path.is_file()]
        content = writer.finish(len(found), sum(path.stat().st_size for path in found))
        tar.unlink()
        return RunContent(
            artifact_id=DATASET, role=ArtifactRole.DATASET, name="data", content=content
        )

    def brings(self, content: RunContent) -> None:
        """Bring the dataset for one more job, as the staging of a run does."""
        self.count += 1
        self.runner.run(self._bring(content, f"job-bench{self.count}-0-1"))

    async def _bring(self, content: RunContent, run_id: str) -> None:
        activity = ActivityEnvironment()

        await activity.run(bring_contents, self.node, run_id, (content,), None)

    async def watched(self) -> None:
        """Open the connection, and have the agent compiled, as the first watch of a node does."""
        async with NodeClient(self.node).stream("watch", {}) as stream:
            async for _ in stream:
                break
        agents = Path(str(self.node.root)) / "agent"
        await eventually(
            lambda: any(path.suffix.startswith(".cpython") for path in agents.iterdir()),
            "the agent is compiled",
        )

    def forget(self) -> None:
        """Let the node have no content, and let the disk come to rest."""
        self.count += 1
        aside = self.folder / "aside" / str(self.count)
        aside.mkdir(parents=True)
        for path in (Path(str(self.node.root)) / "contents", self.folder / "copied"):
            if path.exists():
                path.rename(aside / path.name)
        (self.folder / "copied").mkdir()
        os.sync()

    def ssh(self, program: str, port_option: str) -> list[str]:
        return [program, *SSH_OPTIONS, port_option, str(self.sshd.port), "-i",
                str(self.sshd.folder / "bench")]  # fmt: skip


def rows() -> list[Row]:
    """Ratios of one run; the disk is at rest before each measurement, and the source is cached."""
    with lab() as found:
        return [*_large(found), _small(found)]


def _large(found: Lab) -> list[Row]:
    files = found.folder / "large"
    files.mkdir()
    with (files / "file").open("wb") as file:
        for _ in range(LARGE_BYTES // 10**6):
            file.write(os.urandom(10**6))
    content = found.stored(files)
    scp = [*found.ssh("scp", "-P"), str(files / "file"), f"127.0.0.1:{found.folder}/copied/"]
    ours_s, scp_s = _in_turns(found, lambda: found.brings(content), lambda: _run(scp))
    found.forget()
    found.brings(content)
    second_s = best_s(lambda: found.brings(content))
    amount = f"{LARGE_BYTES / 1e9:.2f} GB"
    rate = LARGE_BYTES / ours_s / 1e6
    return [
        Row(
            f"a dataset of {amount} to a node, checked and unpacked",
            f"{ms(ours_s)}, {rate:,.0f} MB/s, {scp_s / ours_s:.2f} × scp",
            f"scp: {ms(scp_s)}",
            "0.9 × scp",
            scp_s / ours_s >= 0.9,
        ),
        Row(
            f"a second job with the dataset of {amount}",
            f"{ms(second_s)}, {ours_s / second_s:,.0f} × faster",
            f"the first: {ms(ours_s)}",
            "20 ×",
            ours_s / second_s > 20,
        ),
    ]


def _small(found: Lab) -> Row:
    files = found.folder / "small"
    for number in range(SMALL_FILES):
        path = files / f"{number // 500}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    content = found.stored(files)
    ssh = " ".join([*found.ssh("ssh", "-p"), "127.0.0.1"])
    tar = ["sh", "-c", f"tar -C {files} -cf - . | {ssh} 'tar -C {found.folder}/copied -xf -'"]
    ours_s, tar_s = _in_turns(found, lambda: found.brings(content), lambda: _run(tar))
    return Row(
        f"a dataset of {SMALL_FILES:,} files of {SMALL_BYTES} bytes",
        f"{ms(ours_s)}, {tar_s / ours_s:.2f} × tar",
        f"tar | ssh tar: {ms(tar_s)}",
        "0.8 × tar",
        tar_s / ours_s >= 0.8,
    )


def _in_turns(
    found: Lab, ours: Callable[[], None], beside: Callable[[], None]
) -> tuple[float, float]:
    """The best seconds of both, in turns, each on a node without the dataset."""
    times = []
    for _ in range(RUNS):
        found.forget()
        first = best_s(ours, 1)
        found.forget()
        times.append((first, best_s(beside, 1)))
    return min(first for first, _ in times), min(second for _, second in times)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def lab() -> Iterator[Lab]:
    """The node, in folders below /var/tmp, which is on a disk."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-bench-", dir="/var/tmp"))
    sshd = Sshd(folder / "sshd")
    sshd.start()
    shutil.copy(sshd.client_key, sshd.folder / "bench")
    root = folder / "root"
    more = {
        "ssh_key": str(sshd.client_key),
        "secrets_key": "ab" * 32,
        "node_networks": "127.0.0.1/32",
        "storage": f"file://{folder}/storage",
    }
    try:
        with home(**more):
            keys = sshd.folder / "authorized_keys"
            join(root, keys)
            keys.write_text(keys.read_text() + f"{region_key_line(REGION)}\n")
            there = sshd.endpoint(root)
            node = NodeAddress(
                node_id="nod-1",
                region_id=REGION,
                host=there.host,
                port=there.port,
                user=there.user,
                minion_id=there.minion_id,
                root=str(root),
            )
            with asyncio.Runner() as runner:
                found = Lab(sshd, folder, node, runner)
                runner.run(found.watched())
                yield found
                runner.run(close_connections())
    finally:
        sshd.stop()
        shutil.rmtree(folder, ignore_errors=True)
