"""One worker of a job on its node, from its sealed order to a clean node."""

import asyncio
import io
import json
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.site import staging
from activities.site.collection import collect_log, store_output
from activities.site.nodes import end_orphaned_runs
from activities.site.runs import clean_worker, end_worker, get_run_status, start_worker
from activities.site.staging import stage_worker
from activities.storage.names import code_name
from activities.storage.run_specs import Isolation, RunSpec, seal_run_spec
from activities.transport.errors import OutcomeUnknown
from activities.transport.ssh import NodeConnections
from tests.activities.agent.agent_process import processes_of
from tests.activities.archives import archive, file, symlink
from tests.activities.sites import REGION, Site, isolated
from tests.activities.waiting import wait_until
from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.contracts.jobs import RunReport, WorkerAssignment, run_id
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import (
    CleanWorker,
    CollectLog,
    EndWorker,
    GetRunStatus,
    StageWorker,
    StartWorker,
    StoreOutput,
    WorkerStaged,
)
from workflows.effects.nodes import EndOrphanedRuns

JOB = f"job-j{os.getpid()}"
"""Its runs are told by their ids, and another module's of the same name may run beside it."""
RUN = run_id(JOB, 0, 1)
SECRET = "correct-horse-battery-staple"


def order(site: Site, command: str, **more: Any) -> StageWorker:
    """A sealed work order of the job's only worker, and the command that brings it."""
    more.setdefault("disk_size_gb", 0)
    more.setdefault("isolation", isolated(site.node))
    content = RunSpec(run_id=RUN, command=command, **more)
    return StageWorker(
        node=site.node,
        run_id=RUN,
        run_spec=seal_run_spec(JOB, 1, 0, REGION, content),
        assignment=WorkerAssignment(worker=0, node=site.node),
    )


def upload(site: Site, folder: Path, *changes: Any) -> str:
    """An archive as the API stores it; its hash."""
    path, sha256 = archive(folder, *changes)
    site.blobs.put_file(code_name(sha256), path)
    return sha256


async def started(site: Site, command: str, **more: Any) -> RunReport:
    await site.do(stage_worker, order(site, command, **more))
    return await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))


async def look(site: Site) -> RunReport:
    return await site.do(get_run_status, GetRunStatus(node=site.node, run_id=RUN))


async def ended(site: Site, grace_s: int = 1) -> RunReport:
    command = EndWorker(node=site.node, run_id=RUN, grace_s=grace_s)
    return await site.do(end_worker, command)


async def exited(site: Site) -> RunReport:
    await wait_until(site.agent.path(RUN, "exit.json").exists, "an exit")
    return await look(site)


async def collected(site: Site) -> bytes:
    answer = await site.do(collect_log, CollectLog(node=site.node, run_id=RUN))
    content = b"".join(site.logs.stream(RUN))
    assert answer.stored_bytes == len(content)
    return content


async def refusal(site: Site, command: StageWorker) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await site.do(stage_worker, command)
    return caught.value


# ── staging ─────────────────────────────────────────────────────────────────────────────────────


async def test_code_input_and_variables_are_there_when_the_command_starts(
    site: Site, tmp_path: Path
) -> None:
    code = upload(site, tmp_path, file("main.sh", b'cat "$BASELOAD_INPUT/words"; echo $WHO'))
    words = upload(site, tmp_path, file("words", b"from the input\n"))
    await started(
        site,
        "sh main.sh; echo $BASELOAD_WORKERS; echo made > $BASELOAD_OUTPUT/made",
        code_sha256=code,
        input_sha256=words,
        environment={"WHO": "a variable", "BASELOAD_WORKERS": "3"},
    )
    assert (await exited(site)).exit is not None
    assert await collected(site) == b"from the input\na variable\n3\n"


@pytest.mark.parametrize(
    ("assignment", "node"),
    [
        ({"job_user": None}, {}),
        ({"job_user": "root"}, {}),
        ({"gpu_uuids": ("GPU-of-another",)}, {}),
        ({}, {"node_id": "nod-another"}),
        ({}, {"minion_id": "SHA256:another"}),
    ],
)
async def test_nothing_outside_of_the_seal_decides_how_a_run_is_isolated(
    site: Site, assignment: dict[str, Any], node: dict[str, Any]
) -> None:
    sealed = Isolation(
        node_id=site.node.node_id,
        minion_id=site.node.minion_id,
        login_user=site.node.user,
        job_user="baseload-job",
        gpu_uuids=("GPU-own",),
    )
    command = order(site, "id -u", isolation=sealed)
    given = {"job_user": "baseload-job", "gpu_uuids": ("GPU-own",), **assignment}
    changed = command.model_copy(
        update={
            "assignment": command.assignment.model_copy(update=given),
            "node": command.node.model_copy(update=node),
        }
    )
    found = await refusal(site, changed)
    assert found.type == errors.REFUSED
    assert found.non_retryable
    assert not site.agent.path(RUN).exists()


async def test_a_command_without_a_seal_runs_nothing_as_root(site: Site) -> None:
    command = order(site, "id -u", isolation=None)
    as_root = command.node.model_copy(update={"user": "root"})
    unsealed = command.assignment.model_copy(update={"job_user": None})
    found = await refusal(
        site, command.model_copy(update={"node": as_root, "assignment": unsealed})
    )
    assert found.type == errors.REFUSED


async def test_staging_twice_stages_once_and_brings_the_code_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = []
    put_file = NodeConnections.put_file

    async def counted(pool: NodeConnections, *args: Any, **more: Any) -> str:
        puts.append(args)
        return await put_file(pool, *args, **more)

    monkeypatch.setattr(NodeConnections, "put_file", counted)
    code = upload(site, tmp_path, file("a", b"a"))
    command = order(site, "true", code_sha256=code)
    assert (
        await asyncio.gather(*(site.do(stage_worker, command) for _ in range(3)))
        == [WorkerStaged()] * 3
    )
    assert await site.do(stage_worker, command) == WorkerStaged()
    assert len(puts) == 1
    assert (await look(site)).state is RunState.STAGED


async def test_code_whose_transfer_was_cut_is_brought_by_the_next_try(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3_000_000)
    command = order(site, "wc -c < big", code_sha256=upload(site, tmp_path, file("big", content)))
    chunks = staging._chunks

    async def cut(sha256: str) -> Any:
        async for chunk in chunks(sha256):
            yield chunk
            site.sshd.cut()

    monkeypatch.setattr(staging, "_chunks", cut)
    assert (await refusal(site, command)).type in errors.LOSSES
    monkeypatch.setattr(staging, "_chunks", chunks)
    await site.do(stage_worker, command)
    await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    await exited(site)
    assert await collected(site) == b"3000000\n"


async def test_an_archive_with_a_link_that_leaves_it_is_refused_for_the_owner_to_mend(
    site: Site, tmp_path: Path
) -> None:
    code = upload(site, tmp_path, symlink("way-out", "/etc/passwd"))
    found = await refusal(site, order(site, "true", code_sha256=code))
    assert found.type == errors.WORK_REFUSED
    assert found.details == ({"code": "unsafe-archive"},)
    assert "way-out" in str(found)
    assert "pack the files again" in str(found)


async def test_packages_that_cannot_be_installed_are_refused_with_pips_own_words(
    site: Site,
) -> None:
    command = order(site, "true", python_packages=("./no-such-package-here.whl",))
    found = await refusal(site, command)
    assert (found.type, found.details) == (errors.WORK_REFUSED, ({"code": "packages"},))
    assert "no-such-package-here" in str(found).splitlines()[0][:200]
    assert "environment.python_packages" in str(found)
    stored = b"".join(site.logs.stream(RUN)).decode()
    assert "no-such-package-here" in stored, "what pip has said is the log"
    assert any("installing 1 package" in told for told in site.told)


async def test_a_run_whose_staging_broke_off_is_ours_to_end(site: Site, tmp_path: Path) -> None:
    words = upload(site, tmp_path, file("words", b"as sent"))
    await refusal(site, order(site, "true", input_sha256=words, disk_size_gb=10_000_000))
    assert site.agent.path(RUN, "input/words").read_bytes() == b"as sent"
    found = await site.do(
        end_orphaned_runs, EndOrphanedRuns(node=site.node, among=site.names(RUN), live=())
    )
    assert [(run.run_id, run.elapsed_s) for run in found.runs] == [(RUN, 0)]
    await site.do(clean_worker, CleanWorker(node=site.node, run_id=RUN))
    assert not site.agent.path(RUN).exists()


async def test_more_disk_than_there_is_is_refused_with_both_numbers(site: Site) -> None:
    found = await refusal(site, order(site, "true", disk_size_gb=10_000_000))
    assert (found.type, found.details) == (errors.WORK_REFUSED, ({"code": "disk-full"},))
    assert "10000000.0 GB" in str(found)


async def test_an_image_on_a_node_without_podman_is_refused(site: Site) -> None:
    found = await refusal(site, order(site, "true", image="docker.io/library/debian"))
    assert (found.type, found.details) == (errors.WORK_REFUSED, ({"code": "image"},))
    assert "podman" in str(found)


async def test_a_work_order_that_is_gone_and_an_upload_that_is_gone_are_named(
    site: Site,
) -> None:
    command = order(site, "true", code_sha256="ab" * 32)
    found = await refusal(site, command)
    assert found.type == errors.NOT_FOUND
    assert "ab" * 32 in str(found)
    site.blobs.delete(command.run_spec)
    found = await refusal(site, command)
    assert (found.type, command.run_spec in str(found)) == (errors.NOT_FOUND, True)


async def test_the_order_of_another_run_is_not_taken(site: Site) -> None:
    command = order(site, "true").model_copy(update={"run_id": run_id(JOB, 1, 1)})
    assert (await refusal(site, command)).type == errors.REFUSED


# ── what is secret ──────────────────────────────────────────────────────────────────────────────


async def test_a_secret_is_in_the_jobs_environment_and_nowhere_else(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await started(site, "sleep 600", environment={"TOKEN": SECRET})
    [pid] = await wait_until(lambda: processes_that(RUN, b"sleep"), "the command has begun")
    assert f"TOKEN={SECRET}".encode() in read(pid, "environ")
    assert [one for one in all_processes() if SECRET.encode() in read(one, "cmdline")] == []
    await ended(site)
    await collected(site)
    await site.do(store_output, StoreOutput(node=site.node, run_id=RUN))
    assert not [told for told in site.told if SECRET in told]
    assert SECRET not in caplog.text
    for path in site.blobs.names("orders"):
        assert SECRET.encode() not in site.blobs.get(path)


async def test_an_order_that_was_sealed_for_another_site_cannot_be_opened(site: Site) -> None:
    command = order(site, "true", environment={"TOKEN": SECRET})
    elsewhere = site.node.model_copy(update={"region_id": "reg-2"})
    found = await refusal(site, command.model_copy(update={"node": elsewhere}))
    assert found.type == errors.REFUSED
    assert "reg-2" in str(found)
    assert SECRET not in str(found)
    assert (await look(site)).state is RunState.UNKNOWN


def processes_that(run_id: str, begin_with: bytes) -> list[int]:
    """The run's processes whose command line begins so."""
    return [pid for pid in processes_of(run_id) if read(pid, "cmdline").startswith(begin_with)]


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def all_processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


# ── start, look, end ────────────────────────────────────────────────────────────────────────────


async def test_starting_twice_and_at_once_starts_one_command(site: Site) -> None:
    await site.do(stage_worker, order(site, "echo started; sleep 600"))
    command = StartWorker(node=site.node, run_id=RUN)
    reports = await asyncio.gather(*(site.do(start_worker, command) for _ in range(4)))
    assert {report.state for report in reports} == {RunState.RUNNING}
    await wait_until(lambda: site.agent.path(RUN, "log").read_bytes(), "a line")
    assert (await site.do(start_worker, command)).state is RunState.RUNNING
    assert await collected(site) == b"started\n"


async def test_a_start_whose_answer_is_lost_is_looked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.do(stage_worker, order(site, "sleep 600"))
    call = NodeConnections.call

    async def lose_the_answer(
        pool: NodeConnections, address: Any, verb: str, *args: Any, **more: Any
    ) -> Any:
        answer = await call(pool, address, verb, *args, **more)
        if verb == "start":
            raise OutcomeUnknown("the connection was lost")
        return answer

    monkeypatch.setattr(NodeConnections, "call", lose_the_answer)
    report = await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    assert report.state is RunState.RUNNING


async def test_a_start_that_did_not_happen_is_tried_again_by_the_workflow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.do(stage_worker, order(site, "sleep 600"))
    call = NodeConnections.call

    async def lose_the_request(
        pool: NodeConnections, address: Any, verb: str, *args: Any, **more: Any
    ) -> Any:
        if verb == "start":
            raise OutcomeUnknown("the connection was lost")
        return await call(pool, address, verb, *args, **more)

    monkeypatch.setattr(NodeConnections, "call", lose_the_request)
    with pytest.raises(ApplicationError) as caught:
        await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    assert (caught.value.type, caught.value.non_retryable) == (errors.OUTCOME_UNKNOWN, False)


async def test_what_was_never_staged_cannot_start(site: Site) -> None:
    with pytest.raises(ApplicationError) as caught:
        await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    assert caught.value.type == errors.NODE_REFUSED
    assert RUN in str(caught.value)


async def test_a_look_tells_how_a_command_ended(site: Site) -> None:
    await started(site, "echo oh; no-such-command-here")
    report = await exited(site)
    assert report.state is RunState.EXITED
    assert report.exit is not None
    assert (report.exit.exit_code, report.exit.reason) == (127, "command-not-found")
    assert "no-such-command-here" in report.exit.message
    assert report.log_bytes == len(await collected(site))


async def test_a_look_at_a_run_whose_supervisor_is_gone_says_lost(site: Site) -> None:
    await started(site, "sleep 600")
    os.kill(site.agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    await wait_until(lambda: site.agent.look(RUN)["state"] == "lost", "the loss")
    assert (await look(site)).state is RunState.LOST


async def test_ending_ends_the_whole_tree_and_a_second_time_tells_the_same(site: Site) -> None:
    await started(site, "trap '' TERM; sleep 600 & (setsid sleep 600 &) ; wait")
    await wait_until(lambda: len(processes_of(RUN)) >= 3, "its tree")
    first = await ended(site)
    assert processes_of(RUN) == []
    assert first.state is RunState.EXITED
    assert first.exit is not None
    assert first.exit.elapsed_s > 0
    assert await ended(site) == first


async def test_a_run_that_is_ended_before_it_starts_never_starts(site: Site) -> None:
    await site.do(stage_worker, order(site, "sleep 600"))
    assert (await ended(site)).exit is not None
    report = await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    assert report.state is RunState.EXITED
    assert processes_of(RUN) == []


# ── what is kept ────────────────────────────────────────────────────────────────────────────────


async def test_a_log_is_collected_from_where_the_store_ends_and_only_once(site: Site) -> None:
    await started(site, "head -c 5000000 /dev/urandom; printf '\\0\\377'")
    await exited(site)
    whole = site.agent.path(RUN, "log").read_bytes()
    site.logs.append(RUN, 0, whole[:1234567])
    assert await collected(site) == whole
    assert await collected(site) == whole
    assert len(whole) == 5_000_002


async def test_a_log_whose_collection_was_cut_is_completed_by_the_next_try(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(site, "head -c 20000000 /dev/urandom")
    await exited(site)
    append = type(site.logs).append

    def cut(logs: Any, run: str, offset: int, content: bytes, tail: int) -> int:
        site.sshd.cut()
        return append(logs, run, offset, content, tail)

    monkeypatch.setattr(type(site.logs), "append", cut)
    with pytest.raises(ApplicationError) as caught:
        await site.do(collect_log, CollectLog(node=site.node, run_id=RUN))
    assert caught.value.type in errors.LOSSES
    monkeypatch.setattr(type(site.logs), "append", append)
    assert 0 < site.logs.length(RUN) < 20_000_000
    assert await collected(site) == site.agent.path(RUN, "log").read_bytes()


async def test_a_run_without_a_log_has_an_empty_one(site: Site) -> None:
    await site.do(stage_worker, order(site, "true"))
    assert await collected(site) == b""


async def test_an_output_is_stored_whole_and_stays_when_the_node_is_clean(site: Site) -> None:
    await started(site, "mkdir $BASELOAD_OUTPUT/deep; echo kept > $BASELOAD_OUTPUT/deep/model")
    await exited(site)
    command = StoreOutput(node=site.node, run_id=RUN)
    first = await site.do(store_output, command)
    content = site.blobs.get(f"outputs/{JOB}/0-1.tar.gz")
    assert (first.stored_bytes, first.file_count) == (len(content), 1)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        kept = tar.extractfile("deep/model")
        assert kept is not None
        assert kept.read() == b"kept\n"
    assert await site.do(clean_worker, CleanWorker(node=site.node, run_id=RUN)) == Done()
    assert (await site.do(store_output, command)).stored_bytes == len(content)


async def test_an_output_whose_transfer_was_cut_is_not_there_at_all(site: Site) -> None:
    await started(site, "head -c 30000000 /dev/urandom > $BASELOAD_OUTPUT/model")
    await exited(site)
    command = StoreOutput(node=site.node, run_id=RUN)
    _, task = site.begin(store_output, command)
    outputs = site.blobs.folder
    assert outputs is not None
    await wait_until(lambda: any(part.stat().st_size for part in outputs.glob(".parts/*")), "bytes")
    site.sshd.cut()
    with pytest.raises(ApplicationError) as caught:
        await task
    assert caught.value.type in errors.LOSSES
    assert list(outputs.glob(f"outputs/{JOB}/*")) == []
    assert (await site.do(store_output, command)).stored_bytes > 30_000_000


async def test_cleaning_twice_is_silent_and_leaves_nothing(site: Site) -> None:
    await started(site, "true")
    await exited(site)
    for _ in range(2):
        assert await site.do(clean_worker, CleanWorker(node=site.node, run_id=RUN)) == Done()
    assert not site.agent.path(RUN).exists()


async def test_what_still_runs_is_not_cleaned(site: Site) -> None:
    await started(site, "sleep 600")
    with pytest.raises(ApplicationError) as caught:
        await site.do(clean_worker, CleanWorker(node=site.node, run_id=RUN))
    assert caught.value.type == errors.NODE_REFUSED
    assert json.loads(site.agent.path(RUN, "process.json").read_text())["pid"]
