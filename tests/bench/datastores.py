"""Datastores in user space: the first byte of a file, and a copy, beside a read of this disk.

No datastore is a FUSE mount: where the kernel mounts none, input is copied before the start, by a
child that connects, looks the way up and reads. The kernels of development machines mount neither
NFS nor SMB, so their mounts are not measured. The servers are on this machine.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from activities.agent.datastores.child import in_child
from activities.agent.datastores.copying import Fetching
from activities.agent.datastores.share import Share
from activities.agent.datastores.verbs import opened
from tests.bench.measure import Row, both_best_s, compared
from tests.lab.file_servers import SMB_PASSWORD, SMB_USER, NfsServer, SmbServer, missing_programs
from tests.lab.fixtures import lab_network

SCALE = float(os.environ.get("BASELOAD_BENCH_SCALE", "1"))
LARGE_BYTES = int(256e6 * SCALE)
RUNS = 5
READS = 200
"""First bytes in one measurement of an open connection."""
LIMIT_S = 300.0


def rows() -> list[Row]:
    """Ratios of one run, for each kind of server."""
    if missing := missing_programs():
        return [Row("datastores", f"not measured: apt-get install {' '.join(missing)}")]
    found = []
    with lab_network() as network:
        with NfsServer(network, "nfs0", 100) as nfs:
            nfs.start()
            share = Share("dst-1", "nfs", nfs.address, None, str(nfs.shared), None, None)
            found += _of(share, nfs.shared)
        with SmbServer(network, "smb0", 101) as smb:
            smb.start()
            by = SMB_USER, SMB_PASSWORD
            found += _of(Share("dst-2", "smb", smb.address, None, "/data", *by), smb.shared)
    return found


def _of(share: Share, shared: Path) -> list[Row]:
    folder = shared / "set"
    folder.mkdir()
    (folder / "small").write_bytes(b"x" * 4096)
    with (folder / "large").open("wb") as file:
        for _ in range(LARGE_BYTES // 10**6):
            file.write(os.urandom(10**6))
    name = share.type.upper()
    first = both_best_s(
        lambda: _in_child(share, partial(_first_byte, share)),
        lambda: _read_here(folder / "small"),
        RUNS,
    )
    warm_s, here_s = _in_child(share, partial(_open_connection, share, folder / "small"))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as target:
        copy = both_best_s(
            lambda: _copy(share, Path(target) / "copied"),
            lambda: _copy_here(folder, Path(target) / "here"),
            1,
        )
    return [
        compared("first byte", f"{name}, a new connection", first[0], "of this disk", first[1]),
        compared("first byte", f"{name}, an open connection", warm_s, "of this disk", here_s),
        compared("input copied", f"{name}, {LARGE_BYTES >> 20} MiB", copy[0], "cp", copy[1]),
    ]


def _in_child(share: Share, act: Callable[[], object]) -> list[float]:
    """As the agent does it: in a child without rights."""
    found: list[float] = in_child(share.place, lambda _: act(), stall_s=LIMIT_S, limit_s=LIMIT_S)
    return found


def _first_byte(share: Share) -> None:
    next(opened(share, None).read("set/small"))


def _open_connection(share: Share, here: Path) -> tuple[float, float]:
    """Seconds for one first byte, of the share and of this disk."""
    files = opened(share, None)

    def many(read: Callable[[], object]) -> None:
        for _ in range(READS):
            read()

    there_s, here_s = both_best_s(
        lambda: many(lambda: next(files.read("set/small"))),
        lambda: many(lambda: _read_here(here)),
        RUNS,
    )
    return there_s / READS, here_s / READS


def _read_here(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        file.read(1)


def _copy(share: Share, target: Path) -> None:
    """The copy of an input, as the staging of a run makes it, into an empty folder."""
    target.mkdir()
    target.chmod(0o777)
    target.parent.chmod(0o755)

    def act(say: Callable[[str], None]) -> int:
        return Fetching(opened(share, None), str(target), 1 << 40, say).run(["set"]).files

    in_child(share.place, act, stall_s=LIMIT_S, limit_s=LIMIT_S)
    shutil.rmtree(target)


def _copy_here(folder: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", str(folder), str(target)], check=True)
