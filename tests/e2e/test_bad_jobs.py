"""Jobs that cannot go well, and archives and documents that are wrong: everyone is told why.

All of it on one machine; the jobs of `STORIES` are submitted together, and each test looks at one.
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.e2e.platform import ENDED, Platform, Refused, Resource, Site
from tests.e2e.stack import RunningStack
from tests.lab.machine import Machine
from tests.lab.machines import Lab

RUNS = "/var/lib/baseload/runs"
NOISE_BYTES, LINE_BYTES = 1 << 20, 10 << 20
NOISE = f"""python3 -c '
import os, random, sys
sys.stdout.buffer.write(random.Random(5).randbytes({NOISE_BYTES}) + b"x" * {LINE_BYTES})
sys.exit(4)'"""
ABSENT = {"environment": {"python_packages": ["labgreet", "no-such-package==1.0"]}}
STORIES: dict[str, tuple[str, Resource]] = {
    "packages": ("echo never", ABSENT),
    "setup": ("echo never", {"environment": {"setup": ["echo first words", "exit 6"]}}),
    "absent": ("echo first words; no-such-program --now", {}),
    "segfault": ("echo first words; kill -SEGV $$", {}),
    "killed": ("echo first words; python3 -c 'import os; os.kill(os.getpid(), 9)'", {}),
    "noise": (NOISE, {}),
    "disk-size": ("echo first words; fallocate -l 10100MiB big; sleep 6011", {}),
}


@dataclass(frozen=True)
class Bench:
    """The machine that all of this happens on."""

    machine: Machine
    site: Site
    node_id: str


@pytest.fixture(scope="module")
def bench(lab: Lab, make_site: Callable[..., Site]) -> Iterator[Bench]:
    site = make_site()
    machine = lab.add("bench")
    [node] = site.join(machine)
    yield Bench(machine, site, node.rsplit("/", 1)[1])
    lab.remove("bench")


@pytest.fixture(scope="module")
def failed(platform: Platform, bench: Bench) -> dict[str, Resource]:
    """Every story, told to its end; its path is beside it."""
    jobs = {
        name: platform.job(command, bench.site.region_id, name=name, **changes)
        for name, (command, changes) in STORIES.items()
    }
    return {name: ended(platform, job) for name, job in jobs.items()}


def ended(platform: Platform, job: str) -> Resource:
    found = platform.until(job, lambda one: one["status"] in ENDED, f"{job}: over", 150)
    assert found["status"] == "failed", found
    return found | {"path": job}


def log(platform: Platform, job: Resource) -> bytes:
    return platform.ask("GET", f"{job['path']}/logs").content


def reason(job: Resource) -> str:
    """What a person reads: one that names the worker or the thing, and no internals."""
    told = job["status_reason"]
    assert isinstance(told, str)
    assert "Traceback" not in told
    assert "ActivityError" not in told
    return told


def test_packages_that_cannot_be_installed_are_named_with_what_to_check(
    platform: Platform, failed: dict[str, Resource]
) -> None:
    job = failed["packages"]
    assert "no-such-package==1.0" in reason(job)
    assert "environment.python_packages" in reason(job)
    assert "\n" not in reason(job)
    events = [each["message"] for each in platform.items(f"{job['path']}/events")]
    assert sum("no-such-package" in message for message in events) == 1, "it is said once"
    assert b"no-such-package==1.0" in log(platform, job), "pip's own words, of which one counts"
    assert b"never" not in log(platform, job)
    assert job["charged_microcredits"] == 0


def test_a_set_up_that_fails_is_the_reason_and_the_command_never_runs(
    platform: Platform, failed: dict[str, Resource]
) -> None:
    job = failed["setup"]
    assert "environment.setup failed: exit code 6" in reason(job)
    assert job["workers"][0]["exit_code"] == 6
    assert b"first words" in log(platform, job)
    assert b"never" not in log(platform, job)
    assert [each["type"] for each in platform.items(f"{job['path']}/events")].count(
        "job.running"
    ) == 1, "it is not tried again"


def test_a_command_that_does_not_exist_is_named(
    platform: Platform, failed: dict[str, Resource]
) -> None:
    job = failed["absent"]
    assert "no-such-program" in reason(job)
    assert "not found" in reason(job)
    assert job["workers"][0]["exit_code"] == 127
    assert log(platform, job).startswith(b"first words\n")


@pytest.mark.parametrize(
    ("story", "name", "number"), [("segfault", "SIGSEGV", 11), ("killed", "SIGKILL", 9)]
)
def test_a_command_that_was_killed_names_the_signal(
    platform: Platform, failed: dict[str, Resource], story: str, name: str, number: int
) -> None:
    job = failed[story]
    assert name in reason(job)
    assert job["workers"][0]["signal"] == number
    assert log(platform, job).startswith(b"first words\n")


def test_binary_and_ten_megabytes_without_a_newline_are_kept_to_the_byte(
    platform: Platform, failed: dict[str, Resource]
) -> None:
    job = failed["noise"]
    # The same generator as in the job: numbers to compare with, nothing secret.
    printed = random.Random(5).randbytes(NOISE_BYTES) + b"x" * LINE_BYTES
    assert log(platform, job) == printed
    tail = platform.ask("GET", f"{job['path']}/logs", params={"offset": len(printed) - 7})
    assert tail.content == b"x" * 7
    assert "exit code 4" in reason(job)
    assert job["workers"][0]["exit_code"] == 4


def test_a_job_that_writes_more_than_its_disk_size_is_ended_and_says_so(
    platform: Platform, failed: dict[str, Resource], bench: Bench
) -> None:
    job = failed["disk-size"]
    assert "disk_size_gb" in reason(job)
    assert "10.6 GB" in reason(job)
    assert log(platform, job) == b"first words\n"
    assert "sleep 6011" not in bench.machine.command_lines()


@pytest.fixture
def shrinking_disk(bench: Bench, failed: dict[str, Resource]) -> Iterator[Callable[[], None]]:
    """A disk of its own under the runs, which can be made small once a job is there."""
    assert failed
    bench.machine.small_disk(RUNS, 12_000)

    def shrink() -> None:
        bench.machine.run("mount", "-o", "remount,size=100m", RUNS)

    yield shrink
    bench.machine.run("umount", "-l", RUNS)


def test_a_job_that_dies_of_a_full_disk_says_that_the_disk_is_full(
    platform: Platform, bench: Bench, shrinking_disk: Callable[[], None]
) -> None:
    room = "df --output=avail -k . | tail -1"
    job = platform.job(
        f"echo first words; while [ $({room}) -gt 200000 ]; do sleep 0.1; done; "
        "head -c 200000000 /dev/zero > big || exit 3",
        bench.site.region_id,
    )
    platform.until_status(job, "running")
    shrinking_disk()
    full = ended(platform, job)
    assert "disk is full" in reason(full)
    assert full["workers"][0]["exit_code"] == 3
    assert log(platform, full).startswith(b"first words\n")
    again = platform.job("true", bench.site.region_id)
    assert "the node's disk has no room" in reason(ended(platform, again))


# ── what is refused at once ────────────────────────────────────────────────────────────────


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def mistakes(answer: Refused) -> dict[str, Resource]:
    return {found["field"]: found for found in answer.problem["errors"]}


def test_a_document_with_several_mistakes_gets_all_of_them_at_once(platform: Platform) -> None:
    document = {
        "name": " blanks ",
        "type": "training",
        "colour": "red",
        "resources": {"gpus": "cpu", "disk_size_gb": 5},
        "environment": {"python_packages": ["--index-url=http://elsewhere"]},
        "code": {"upload_id": "upl-none"},
        "workers": [{"command": ""}],
        "placement": {"region_id": "reg-none"},
    }
    answer = refused(lambda: platform.post("/v1/jobs", document))
    assert (answer.status, answer.code) == (422, "invalid-request")
    told = mistakes(answer)
    assert set(told) == {
        "name", "colour", "resources.disk_size_gb", "resources.cpu_count", "code.upload_id",
        "environment.python_packages.0", "workers.0.command", "placement.region_id",
    }  # fmt: skip
    assert all(found["rule"] for found in told.values())
    assert told["resources.disk_size_gb"]["value"] == 5
    assert told["placement.region_id"]["value"] == "reg-none"


def test_an_unknown_gpu_is_refused_with_names_that_are_near(platform: Platform) -> None:
    job = {"resources": {"gpus": "RTX4091:1"}}
    answer = refused(lambda: platform.job("true", "reg-none", **job))
    rule = mistakes(answer)["resources.gpus"]["rule"]
    assert answer.status == 422
    assert "RTX4090" in rule


def test_a_region_that_is_not_there_is_refused(platform: Platform) -> None:
    answer = refused(lambda: platform.job("true", "reg-none"))
    assert answer.status == 422
    assert mistakes(answer)["placement.region_id"]["value"] == "reg-none"


def test_a_request_that_no_node_can_meet_waits_and_each_node_says_why(
    platform: Platform, bench: Bench
) -> None:
    asked = {"gpus": "cpu", "cpu_count": 500, "memory_gib": 1}
    job = platform.job("true", bench.site.region_id, resources=asked)
    waiting = platform.until(job, lambda one: one["placement_refusals"], "refusals")
    assert waiting["status"] == "waiting_for_resources"
    shown = platform.get(f"{job}/placement")["refusals"]
    for refusals in (waiting["placement_refusals"], shown):
        [mine] = [one for one in refusals if one["offer_id"] == bench.node_id]
        assert (mine["code"], mine["ever"]) == ("cpu", False)
        assert "bench: asked 500 CPUs, has" in mine["detail"]
    platform.post(f"{job}/cancel")
    platform.until_status(job, "canceled")


# ── what costs ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def payer(platform: Platform) -> Iterator[str]:
    """Another account, without a credit, pays for ours until the last of these tests."""
    own = f"/v1/accounts/{platform.get('/v1/account')['id']}"
    found: str = platform.post("/v1/accounts", {"name": "payer"})["id"]
    platform.ask("PATCH", own, json={"billing_account_id": found})
    yield found
    platform.ask("PATCH", own, json={"billing_account_id": None})


def test_without_credits_nothing_that_costs_is_started(
    platform: Platform, bench: Bench, payer: str
) -> None:
    before = platform.items("/v1/jobs")
    answer = refused(lambda: platform.job("true", bench.site.region_id))
    assert (answer.status, answer.code) == (402, "insufficient-credits")
    assert f"{payer}: has 0 credits" in answer.problem["detail"]
    assert platform.items("/v1/jobs") == before


def test_a_job_is_stopped_when_the_balance_is_used_up_and_says_so(
    platform: Platform, bench: Bench, payer: str
) -> None:
    platform.post(f"/v1/accounts/{payer}/credits", {"amount_microcredits": 2500})
    job = platform.job("echo first words; sleep 6021", bench.site.region_id)
    stopped = ended(platform, job)
    assert "credits are used up" in reason(stopped)
    assert stopped["charged_microcredits"] >= 2500
    assert log(platform, stopped) == b"first words\n"
    assert "sleep 6021" not in bench.machine.command_lines()
    assert refused(lambda: platform.job("true", bench.site.region_id)).status == 402


# ── archives ───────────────────────────────────────────────────────────────────────────────


def packed(*members: tarfile.TarInfo) -> bytes:
    """A tar.gz of these, each file with as many zeros as its size says."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for info in members:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def announced(size: int) -> bytes:
    """An archive that says that it unpacks to this much."""
    info = member("large")
    info.size = size
    return gzip.compress(info.tobuf() + bytes(1024))


BAD_ARCHIVES = {
    "broken": packed(member("train.py"))[:-9],
    "no archive": b"#!/bin/sh\n",
    "parent": packed(member("../evil")),
    "absolute": packed(member("/etc/cron.d/evil")),
    "link out": packed(member("a", tarfile.SYMTYPE, "../../etc")),
    "absolute link": packed(member("a", tarfile.SYMTYPE, "/etc/passwd")),
    "hard link out": packed(member("a", tarfile.LNKTYPE, "../etc/passwd")),
    "behind a link": packed(member("a", tarfile.SYMTYPE, "b"), member("a/evil")),
    "device": packed(member("a", tarfile.BLKTYPE)),
    "too large": announced(10**13),
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_a_bad_archive_is_refused_before_anything_of_it_is_kept(
    platform: Platform, stack: RunningStack, name: str
) -> None:
    before = stored(stack)
    answer = refused(lambda: platform.ask("POST", "/v1/uploads", content=BAD_ARCHIVES[name]))
    assert answer.status == 422
    assert mistakes(answer)["body"]["rule"]
    assert stored(stack) == before


def test_an_upload_that_is_cut_off_keeps_nothing(platform: Platform, stack: RunningStack) -> None:
    before = stored(stack)

    def half() -> Iterator[bytes]:
        yield packed(member("train.py"))[:20]
        raise ConnectionError("the laptop was closed")

    with pytest.raises((ConnectionError, httpx.TransportError)):
        platform.http.post("/v1/uploads", content=half())
    assert stored(stack) == before


def stored(stack: RunningStack) -> set[str]:
    """Every file of the store."""
    folder = stack.home / "storage"
    return {str(path.relative_to(folder)) for path in folder.glob("code/**/*") if path.is_file()}
