"""Each bound of what a node may say, broken once, against the activities that ask it."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.site import watch
from activities.site.answers.frames import BeatFrame, ExitFrame, LogFrame, frames
from activities.site.answers.reading import Speaker
from activities.site.answers.text import plain
from activities.transport.ssh import MOST_ANSWER_BYTES
from tests.activities.documents import replaced
from tests.activities.hostile_sites import BOOT, OWN, HostileSite
from tests.failure.hostile_node import Words, answer
from workflows.contracts import errors
from workflows.contracts.base import MOST_SECONDS
from workflows.contracts.nodes import Hardware, RunSeen
from workflows.effects.jobs import SnapshotOutcome

NAME = "(its run)"
"""Stands for the name of the node's own run in a path."""
RUN = ("runs", NAME)
HARDWARE = ("hardware",)
GPU, DISK = (*HARDWARE, "gpus", 0), (*HARDWARE, "disks", 0)
ENDED = ("ended", NAME)
TOO_LONG = MOST_SECONDS * 2.0
TOO_LARGE = 10**30
UNKNOWN = {"state": "unknown", "elapsed_s": 0, "exit": None, "log_bytes": 0}
ODD = "a\x1b[2Jb"

BROKEN: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "status": [
        (("boot_id",), 7),
        (("boot_id",), "../../etc"),
        (("boot_id",), "1" * 101),
        (("runs",), []),
        (("runs",), {}),
        (("runs",), {"../../etc/cron.d/x-0-1": {}}),
        (("runs",), {f"job-{number}": UNKNOWN for number in range(5000)}),
        (RUN, None),
        ((*RUN, "state"), "winning"),
        ((*RUN, "elapsed_s"), -1),
        ((*RUN, "elapsed_s"), TOO_LONG),
        ((*RUN, "elapsed_s"), float("nan")),
        ((*RUN, "elapsed_s"), float("inf")),
        ((*RUN, "elapsed_s"), "3"),
        ((*RUN, "elapsed_s"), True),
        ((*RUN, "elapsed_s"), None),
        ((*RUN, "idle_s"), -0.5),
        ((*RUN, "log_bytes"), -1),
        ((*RUN, "log_bytes"), 1 << 63),
        ((*RUN, "log_bytes"), 1.5),
        ((*RUN, "started_at"), "2026-01-01T00:00:00"),
        ((*RUN, "started_at"), "0001-01-01T00:00:00+23:59"),
        ((*RUN, "started_at"), 7),
        ((*RUN, "exit"), "well"),
        ((*RUN, "exit", "exit_code"), TOO_LARGE),
        ((*RUN, "exit", "signal"), "KILL"),
        ((*RUN, "exit", "elapsed_s"), TOO_LONG),
        ((*RUN, "exit", "log_bytes"), -1),
        ((*RUN, "exit", "reason"), ODD),
        ((*RUN, "exit", "reason"), "x" * 65),
        ((*RUN, "exit", "message"), 7),
    ],
    "inspect": [
        (HARDWARE, []),
        ((*HARDWARE, "cpu_count"), 0),
        ((*HARDWARE, "cpu_count"), TOO_LARGE),
        ((*HARDWARE, "core_count"), -1),
        ((*HARDWARE, "memory_bytes"), TOO_LARGE),
        ((*HARDWARE, "free_disk_bytes"), -1),
        ((*HARDWARE, "network_mbps"), TOO_LARGE),
        ((*HARDWARE, "hostname"), "x" * 1000),
        ((*HARDWARE, "tpm"), "yes"),
        ((*HARDWARE, "is_root"), 1),
        ((*HARDWARE, "runtimes"), ["process"] * 17),
        ((*HARDWARE, "runtimes"), [ODD]),
        ((*HARDWARE, "addresses"), ["10.0.0.2"] * 1025),
        ((*HARDWARE, "addresses"), ["localhost; reboot"]),
        ((*HARDWARE, "gpus"), [{}] * 65),
        ((*GPU, "index"), -1),
        ((*GPU, "index"), 5000),
        ((*GPU, "name"), "x" * 1000),
        ((*GPU, "uuid"), "GPU-1,GPU-2"),
        ((*GPU, "memory_mib"), TOO_LARGE),
        ((*GPU, "pcie_generation"), -1),
        ((*GPU, "pcie_lanes"), TOO_LARGE),
        ((*GPU, "driver_version"), "x" * 1000),
        ((*HARDWARE, "disks"), [{"name": "sda", "size_bytes": 1}] * 1025),
        ((*DISK, "size_bytes"), TOO_LARGE),
        ((*DISK, "rotational"), "no"),
        ((*DISK, "transport"), "x" * 1000),
    ],
    "prepare": [
        (("job_user",), "root; reboot"),
        (("closed_logins",), "true"),
        (("unreachable_peers",), ["10.0.0.1:22"] * 5000),
        (("unreachable_peers",), [7]),
        (("cache",), "10.0.0.2:8710"),
        (("cache", "address"), "10.0.0.2:8710/../"),
        (("cache", "reason"), []),
        (("no_wall_reason",), False),
        (("no_run_root_reason",), 7),
        (("nfs_way",), 7),
    ],
    "has_code": [(("present",), 1)],
    "fetch_code": [
        (("found",), "elsewhere"),
        (("words",), None),
        (("fetched_bytes",), -1),
        (("fetched_bytes",), TOO_LARGE),
    ],
    "fingerprint_state": [
        (("mark",), "../../etc"),
        (("mark",), "a" * 65),
        (("bytes",), -1),
        (("bytes",), "5"),
        (("files",), -1),
        (("files",), TOO_LARGE),
    ],
    "start": [(("state",), None), (("elapsed_s",), -1), (("log_bytes",), -1)],
    "end": [(("state",), None), (("elapsed_s",), TOO_LONG), (("exit", "exit_code"), "0")],
    "clean": [
        (("kept",), None),
        (("kept",), ["../.."]),
        (("kept",), ["job-1"] * 5000),
    ],
    "orphans": [
        (("ended",), []),
        (("ended",), {"..": {}}),
        ((*ENDED, "elapsed_s"), TOO_LONG),
        ((*ENDED, "told_before_s"), "long"),
        ((*ENDED, "started_at"), "yesterday"),
        (("alive",), {"job-1": {}}),
    ],
    "stage": [((), [])],
    "reboot": [((), 7)],
    "release": [((), "yes")],
    "unpack_code": [((), None)],
    "prune": [((), [])],
}


async def broken_by(hostile: HostileSite, verb: str) -> ApplicationError:
    """The failure of the activity that asks this of the node, which says what it must not."""
    with pytest.raises(ApplicationError) as caught:
        await hostile.do(verb)
    found = caught.value
    assert (found.type, found.non_retryable) == (errors.PROTOCOL_VIOLATION, True), found
    assert found.message.startswith(f"node nod-hostile: {verb.partition(' ')[0]}: "), found.message
    assert len(found.message) < 400
    assert found.message.isprintable()
    return found


@pytest.mark.parametrize("verb", sorted(BROKEN))
async def test_a_node_that_breaks_a_bound_is_refused_by_its_name(
    hostile: HostileSite, verb: str
) -> None:
    for path, value in BROKEN[verb]:
        hostile.is_honest()
        honest = {"ok": True, **hostile.honest().get(verb, {})}
        there = tuple(hostile.name if part == NAME else part for part in path)
        said = replaced(honest, there, value) if path else value
        hostile.machine.says[verb] = Words(json.dumps(said).encode() + b"\n")
        found = await broken_by(hostile, verb)
        field = [str(part) for part in path if part != NAME][-1:]
        assert all(part in found.message for part in field), found.message
    assert hostile.jobs.signals == []


async def test_what_our_agent_says_breaks_no_bound(hostile: HostileSite) -> None:
    hostile.is_honest()
    for verb in (*BROKEN, "read_log", "pack_output", "pack_state", "keep_code", "put_input"):
        await hostile.do(verb)
    with pytest.raises(ApplicationError) as ended:
        await hostile.do("watch")
    assert ended.value.type == errors.NODE_UNREACHABLE


NO_ANSWERS = (
    b"no json",
    b"[]",
    b"7",
    b"[" * 100_000,
    b"\xff\xfe",
    b"{",
    b'{"ok": 1}',
    b'{"ok": false}',
    b'{"ok": true}{}',
    b'{"ok": true, "boot_id": "1", "runs": {}, "n": ' + b"1" * 5000 + b"}",
    b'{"ok": false, "error": {"code": "../.."}}',
    b'{"ok": false, "error": {"code": 7}}',
)


@pytest.mark.parametrize("said", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_what_is_no_answer_at_all_is_refused(hostile: HostileSite, said: bytes) -> None:
    hostile.machine.says["status"] = Words(said)
    await broken_by(hostile, "status of the node")


async def test_an_answer_without_an_end_is_refused(hostile: HostileSite) -> None:
    hostile.machine.says["status"] = Words(b"x" * (1 << 20), repeat=4)
    found = await broken_by(hostile, "status of the node")
    assert str(MOST_ANSWER_BYTES) in found.message


async def test_a_value_is_shown_in_eighty_characters_and_cannot_move_the_cursor(
    hostile: HostileSite,
) -> None:
    said = "\x1b[2J\u202e" + "x" * 5000
    hostile.machine.says["status"] = answer(boot_id=said, runs={})
    found = await broken_by(hostile, "status of the node")
    assert "xxx" in found.message
    assert "x" * 81 not in found.message


def header(**words: Any) -> bytes:
    return json.dumps(words).encode() + b"\n"


FRAMES = {
    "endless": b"x" * (64 << 10),
    "no-json": b"no json\n",
    "no-object": b"[]\n",
    "no-kind": b'{"kind": 7}\n',
    "deep": b"[" * 60_000 + b"\n",
    "path": header(kind="log", run_id="../../../etc/x-0-1", offset=0, length=0),
    "absolute": header(kind="lost", run_id="/etc/x-0-1", elapsed_s=0, log_bytes=0),
    "long-name": header(kind="idle", run_id="r" * 121, idle_s=0),
    "no-name": header(kind="idle", run_id=7, idle_s=0),
    "long-payload": header(kind="log", run_id="r", offset=0, length=(1 << 20) + 1),
    "negative-payload": header(kind="log", run_id="r", offset=0, length=-1),
    "negative-offset": header(kind="log", run_id="r", offset=-1, length=0),
    "far-offset": header(kind="log", run_id="r", offset=1 << 63, length=0),
    "long-beat": header(kind="beat", length=1 << 40),
    "no-exit": header(kind="exit", run_id="r", exit=[], log_bytes=0),
    "exit-code": header(kind="exit", run_id="r", exit={"exit_code": 10**40}, log_bytes=0),
    "exit-seconds": header(kind="exit", run_id="r", exit={"elapsed_s": 1e300}, log_bytes=0),
    "exit-log": header(kind="exit", run_id="r", exit={}, log_bytes="many"),
    "lost-seconds": header(kind="lost", run_id="r", elapsed_s=-1, log_bytes=0),
    "gpu-percent": header(kind="utilisation", gpus=[{"uuid": "GPU-1", "percent": 101}]),
    "gpu-name": header(kind="utilisation", gpus=[{"uuid": "x" * 101}]),
    "many-gpus": header(kind="utilisation", gpus=[{"uuid": "GPU-1"}] * 65),
    "many-runs": header(kind="utilisation", runs=[{"run_id": "r"}] * 257),
    "cpu-percent": header(kind="utilisation", runs=[{"run_id": "r", "cpu_percent": -1.0}]),
    "run-memory": header(kind="utilisation", runs=[{"run_id": "r", "memory_bytes": 1 << 60}]),
    "run-path": header(kind="utilisation", runs=[{"run_id": "../r"}]),
    "idle-seconds": header(kind="idle", run_id="r", idle_s=float("inf")),
    "no-hostname": header(kind="hostname", run_id="r", hostname="a.b.local", state="published"),
    "hostname-state": header(kind="hostname", run_id="r", hostname="a.local", state="mine"),
    "hostname-address": header(
        kind="hostname", run_id="r", hostname="a.local", state="conflict", addresses=["nobody"]
    ),
    "many-addresses": header(
        kind="hostname", run_id="r", hostname="a.local", state="conflict", addresses=["::1"] * 17
    ),
}


@pytest.mark.parametrize("said", FRAMES.values(), ids=FRAMES)
async def test_what_is_no_frame_ends_the_watch_and_leaves_nothing(
    hostile: HostileSite, said: bytes
) -> None:
    before = hostile.files()
    hostile.machine.says["watch"] = Words(said, stays=True)
    await broken_by(hostile, "watch")
    assert (hostile.files(), hostile.jobs.signals) == (before, [])


@pytest.mark.parametrize("what", ["HEADER_BYTES", "LOG_BYTES"])
async def test_a_node_that_floods_its_watch_with_beats_leaves_time_to_others(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(watch, f"{what}_AT_ONCE", 50_000)
    monkeypatch.setattr(watch, f"{what}_PER_S", 100_000)
    text = "x" * 10_000
    beat = header(kind="beat", unknown=text)
    if what == "LOG_BYTES":
        beat = header(kind="beat", length=len(text)) + text.encode()
    hostile.machine.says["watch"] = Words(beat * 12 + b"no frame\n", stays=True)
    began_s = time.monotonic()
    await broken_by(hostile, "watch")
    assert time.monotonic() - began_s >= 0.4


async def test_frames_are_the_same_however_their_bytes_are_cut() -> None:
    ended = {"exit_code": 0, "elapsed_s": 2, "message": "x" * 50_000, "unknown": 1}
    said = (
        header(kind="beat")
        + header(kind="news", of="a later release")
        + header(kind="log", run_id="r", offset=5, length=3, payload="false")
        + b"abc"
        + header(kind="exit", run_id="r", exit=ended, log_bytes=8)
        + b'{"kind": "an incomplete last'
    )

    async def source(step: int) -> AsyncIterator[bytes]:
        for start in range(0, len(said), step):
            yield said[start : start + step]

    by = Speaker("nod-1", "watch")
    beat, news, log, exited = [frame async for frame in frames(source(1), by)]
    assert [beat, news, log, exited] == [frame async for frame in frames(source(4096), by)]
    assert isinstance(beat, BeatFrame)
    assert isinstance(news, BeatFrame)
    assert isinstance(log, LogFrame)
    assert (log.run_id, log.offset, log.payload) == ("r", 5, b"abc")
    assert isinstance(exited, ExitFrame)
    assert (exited.log_bytes, len(exited.exit.message)) == (8, 2000)


async def test_more_of_a_log_than_was_asked_for_is_not_stored(hostile: HostileSite) -> None:
    hostile.is_honest()
    said = hostile.honest()["status"]
    hostile.machine.says["status"] = answer(
        **replaced(said, ("runs", hostile.name, "log_bytes"), 3)
    )
    hostile.machine.says["read_log"] = Words(b"more than three bytes")
    await broken_by(hostile, "read_log")


# ── what a job does to its node's words is no fault of the node ─────────────────────────────────


async def test_a_hole_in_a_jobs_own_files_is_no_fault_of_its_node(hostile: HostileSite) -> None:
    hostile.is_honest()
    found = {"mark": "ab", "bytes": 1 << 70, "files": 3}
    hostile.machine.says["fingerprint_state"] = answer(**found)
    assert (await hostile.do("fingerprint_state")).outcome is SnapshotOutcome.TOO_LARGE
    said = hostile.honest()["status"]
    length = (1 << 63) - 1
    hostile.machine.says["status"] = answer(
        **replaced(said, ("runs", hostile.name, "log_bytes"), length)
    )
    assert (await hostile.do("status")).log_bytes == length


async def test_a_clock_that_was_set_is_no_fault_of_its_node(hostile: HostileSite) -> None:
    hostile.is_honest()
    said = hostile.honest()["orphans"]
    said = replaced(said, ("ended", hostile.name, "told_before_s"), MOST_SECONDS * 6.0)
    said = replaced(said, ("ended", hostile.name, "started_at"), "1970-01-01T00:00:00.000000+00:00")
    hostile.machine.says["orphans"] = answer(**said)
    [run] = (await hostile.do("orphans")).runs
    assert isinstance(run, RunSeen)
    assert run.run_id == OWN


# ── text ────────────────────────────────────────────────────────────────────────────────────────

EVIL = "a\x1b[31m\x9b2J\x7f\x00b\u202ec\u2066d\r\ne\u2028f"
PLAIN = "a[31m2Jbcd e f"


def test_text_keeps_no_character_that_acts_on_the_screen() -> None:
    assert plain(EVIL, 100) == PLAIN
    assert plain("the beginning and the end", 7) == "the end"
    every = "".join(map(chr, range(0x3000)))
    left = plain(every, len(every))
    assert all(each.isprintable() or not each.isascii() for each in left)
    assert not {*map(chr, range(0x80, 0xA0)), "\u200f", "\u202e", "\u2067"} & set(left)


async def test_hardware_is_stored_under_plain_names(hostile: HostileSite) -> None:
    said = hostile.honest()["inspect"]
    for path in (
        (*GPU, "name"),
        (*DISK, "name"),
        (*HARDWARE, "hostname"),
        (*HARDWARE, "cpu_model"),
    ):
        said = replaced(said, path, EVIL)
    hostile.machine.says["inspect"] = answer(**said)
    found = (await hostile.do("inspect")).hardware
    assert type(found) is Hardware
    assert {found.gpus[0].name, found.disks[0].name, found.hostname, found.cpu_model} == {PLAIN}


async def test_reasons_refusals_and_progress_are_plain(hostile: HostileSite) -> None:
    hostile.is_honest()
    prepared = hostile.honest()["prepare"]
    prepared = replaced(prepared, ("cache",), {"address": None, "reason": EVIL})
    hostile.machine.says["prepare"] = answer(**{**prepared, "no_wall_reason": EVIL})
    found = (await hostile.do("prepare")).preparation
    assert (found.no_cache_reason, found.trusted_only_reason) == (PLAIN, PLAIN)

    status = replaced(
        hostile.honest()["status"], ("runs", hostile.name, "exit", "message"), EVIL * 500
    )
    hostile.machine.says["status"] = answer(**status)
    message = (await hostile.do("status")).exit.message
    assert message.endswith(PLAIN)
    assert len(message) <= 2000

    refused = {"ok": False, "error": {"code": "packages", "message": EVIL}}
    progress = f"\x1b[2J{'x' * 5000}\u202e\n".encode()
    hostile.machine.says["stage"] = Words(json.dumps(refused).encode(), err=progress)
    with pytest.raises(ApplicationError) as caught:
        await hostile.do("stage")
    assert caught.value.type == errors.WORK_REFUSED
    assert caught.value.message.startswith(f"{PLAIN}. On ")
    assert all(detail.isprintable() for detail in hostile.heard)
    assert max(map(len, hostile.heard)) <= 1000

    hostile.machine.says["status"] = Words(b"", err=b"\x1b[2Jevil\n", status=1)
    with pytest.raises(ApplicationError) as broken:
        await hostile.do("status")
    assert "evil" in broken.value.message
    assert broken.value.message.isprintable()


async def test_a_node_says_nothing_of_runs_and_peers_that_it_was_not_asked_for(
    hostile: HostileSite,
) -> None:
    hostile.is_honest()
    prepared = {**hostile.honest()["prepare"], "unreachable_peers": ["10.0.0.9:22"]}
    hostile.machine.says["prepare"] = answer(**prepared)
    assert (await hostile.do("prepare")).preparation.unreachable_peers == ()
    said = hostile.honest()["orphans"]
    hostile.machine.says["orphans"] = answer(ended={}, alive={})
    assert (await hostile.do("orphans")).runs == ()
    hostile.machine.says["orphans"] = answer(**said)
    assert len((await hostile.do("orphans")).runs) == 1
    assert (await hostile.do("status of the node")).boot_id == BOOT
