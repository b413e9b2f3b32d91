"""Names in the store are made of ids that were checked, whoever has said them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.devices.assignments import next_number
from activities.storage import names
from activities.storage.blobs import BlobStore
from activities.storage.logs import LogStore
from activities.storage.state_snapshots import StateSnapshot, copies_of
from workflows.contracts.devices import device_run_id
from workflows.contracts.jobs import parse_run_id, run_id

JOB = "job-01jd0000000000000000000000"
HOSTILE = (
    "",
    ".",
    "..",
    "../../../../etc/cron.d",
    "/etc/passwd",
    "job-1/../../x",
    "job-..",
    "job-1/2",
    "job-1\\2",
    "job-1\0",
    "job-1\n",
    "job-1 ",
    "Job-1",
    "job-",
    "job",
    "nod-1",
    "job-" + "1" * 300,
    "job-\u0661",
    "job-\N{FULLWIDTH DIGIT ONE}",
    "job-1-2",
)
HOSTILE_RUNS = (
    *(f"{job_id}-0-1" for job_id in HOSTILE),
    *HOSTILE,
    f"{JOB}-\u0661-1",
    f"{JOB}-0-1\n",
    f"{JOB}- 0-1",
    f"{JOB}-+0-1",
    f"{JOB}--1-1",
    f"{JOB}-00-1",
    f"{JOB}-0-01",
    f"{JOB}-0_0-1",
    f"{JOB}-{'9' * 5000}-1",
    f"{JOB}-0-{'9' * 5000}",
    f"{JOB}-0-1/../../x",
)
DEVICE = "dev-01m8a5vc5y96tgzv1g10eqy2bt"
SAVED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("name", HOSTILE_RUNS)
def test_what_is_no_run_id_is_refused_as_one_and_makes_no_log(name: str, tmp_path: Path) -> None:
    logs = LogStore(f"file://{tmp_path}/inside")
    touches: tuple[Callable[[], object], ...] = (
        lambda: parse_run_id(name),
        lambda: names.log_name(name),
        lambda: logs.append(name, 0, b"x"),
        lambda: logs.length(name),
        lambda: logs.read(name, 0),
        lambda: list(logs.stream(name)),
    )
    for touch in touches:
        with pytest.raises(ValueError, match="run id"):
            touch()
    assert list(tmp_path.rglob("*.log")) == []


@pytest.mark.parametrize("job_id", HOSTILE)
def test_what_is_no_job_id_names_nothing(job_id: str, tmp_path: Path) -> None:
    logs = LogStore(f"file://{tmp_path}/inside")
    store = BlobStore(f"file://{tmp_path}/inside")
    touches: tuple[Callable[[], object], ...] = (
        lambda: names.run_spec_name(job_id, 1, 0),
        lambda: names.run_specs_of(job_id, 1),
        lambda: names.run_specs_of(job_id),
        lambda: names.output_name(job_id, 0, 1),
        lambda: names.outputs_of(job_id),
        lambda: names.states_of(job_id),
        lambda: names.logs_of(job_id),
        lambda: logs.delete(job_id),
        lambda: copies_of(store, job_id, 0),
        lambda: StateSnapshot(1, SAVED, "ab").name(job_id, 0),
    )
    for touch in touches:
        with pytest.raises(ValueError, match="job id"):
            touch()


@pytest.mark.parametrize("sha256", ["", "../x", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a/" * 32])
def test_what_is_no_hash_names_no_upload(sha256: str) -> None:
    for make in (names.code_name, names.upload_lock):
        with pytest.raises(ValueError, match="SHA-256"):
            make(sha256)


@pytest.mark.parametrize("mark", ["", "../x", "a/b", "a_b", "AB", "ab\n", "a" * 65])
def test_a_fingerprint_that_a_node_made_up_names_no_snapshot(mark: str) -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        StateSnapshot(1, SAVED, mark).name(JOB, 0)


@pytest.mark.parametrize(("worker", "attempt"), [(0, 1), (7, 12), (999, 999_999)])
def test_a_run_id_is_read_as_it_was_made(worker: int, attempt: int) -> None:
    assert parse_run_id(run_id(JOB, worker, attempt)) == (JOB, worker, attempt)


def test_the_run_of_an_assignment_is_read_as_it_was_made_whatever_the_year() -> None:
    for year in (2026, 2126, 3126):
        number = next_number(0, SAVED.replace(year=year))
        for each in (1, number):
            assert parse_run_id(device_run_id(DEVICE, each)) == (DEVICE, 0, each)
    for name in (f"{DEVICE}-1-1", f"{DEVICE}-0-{10**9}", f"{JOB}-0-{10**6}"):
        with pytest.raises(ValueError, match="is no run id"):
            parse_run_id(name)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//x", "a/.", "a\\b", "a\0b", ""])
def test_no_object_lies_outside_the_store(name: str, tmp_path: Path) -> None:
    store = BlobStore(f"file://{tmp_path}/inside")
    touches: tuple[Callable[[], object], ...] = (
        lambda: store.put(name, b"x"),
        lambda: store.get(name),
        lambda: store.size(name),
        lambda: store.delete(name),
        lambda: store.delete_folder(name),
        lambda: store.names(name),
    )
    for touch in touches:
        with pytest.raises(ValueError, match="plain file name"):
            touch()
    assert not list(tmp_path.iterdir())


def test_what_belongs_to_a_job_lies_below_its_own_id() -> None:
    assert names.run_specs_of(JOB) == f"orders/{JOB}"
    assert names.run_specs_of(JOB, 2) == f"orders/{JOB}/2"
    assert names.run_spec_name(JOB, 2, 1) == f"orders/{JOB}/2/1"
    assert names.output_name(JOB, 1, 2) == f"outputs/{JOB}/1-2.tar.gz"
    assert names.log_name(run_id(JOB, 1, 2)) == f"logs/{JOB}/1-2.log"
    assert names.log_times_name(run_id(JOB, 1, 2)) == f"logs/{JOB}/1-2.log.times"
