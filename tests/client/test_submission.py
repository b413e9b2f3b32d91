"""Jobs on their way: what is shown before, what is sent, with which fields, and from where."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from baseload.commands.submission import array_text
from sqlmodel import select

from activities.db import tables
from activities.jobs.submissions import open_variables
from activities.providers.rental_offers import keep_offers
from tests.activities.placement.test_rental_market import add_marketplace, rental
from tests.client.conftest import Desk
from tests.client.test_commands import JOB_FILE, _node


@pytest.fixture
def folder(desk: Desk) -> Path:
    (desk.folder / "job.yaml").write_text(JOB_FILE)
    (desk.folder / "train.py").write_text("print('hello')")
    (desk.folder / "weights.pt").write_bytes(b"x" * 5000)
    (desk.folder / ".gitignore").write_text("data/\n")
    (desk.folder / "data").mkdir()
    (desk.folder / "data" / "a.csv").write_text("1")
    assert desk.baseload("credit", "add", "25").code == 0
    return desk.folder


def _json(desk: Desk, command: str, *arguments: str) -> dict[str, Any]:
    """What a command says with --json, which stands before the words of the job's command."""
    ended = desk.baseload(command, "--json", *arguments)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def _ready_node(desk: Desk) -> None:
    hardware = {"cpu_count": 4, "memory_bytes": 2**33, "free_disk_bytes": 10**12}
    _node(desk, status="active", cpu_count=4, memory_bytes=2**33, hardware=hardware)


def test_a_dry_run_shows_what_would_be_sent_where_to_and_for_how_much(
    desk: Desk, folder: Path
) -> None:
    _ready_node(desk)
    ended = desk.baseload("submit", "job.yaml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "digits: nothing is sent" in ended.out
    assert "code: 4 files of" in ended.out
    assert "4.9 KiB  weights.pt" in ended.out
    assert "left out: data/ (.gitignore)" in ended.out
    assert "fits: n1, 0.00 credits/h" in ended.out
    assert "CREDITS/H" in ended.out
    assert (desk.site.rows(tables.Job), desk.site.rows(tables.Upload)) == ([], [])


@pytest.mark.parametrize(
    ("array", "count", "names"),
    [
        ("3", "3 jobs", "digits-0 to digits-2"),
        ("[{LR: 1}]", "1 job", "digits-0"),
    ],
)
def test_a_dry_run_of_an_array_tells_its_jobs_and_what_all_of_them_cost(
    desk: Desk, folder: Path, array: str, count: str, names: str
) -> None:
    _ready_node(desk)
    (folder / "job.yaml").write_text(f"{JOB_FILE}array: {array}\n")
    ended = desk.baseload("submit", "job.yaml", "--dry-run")
    assert ended.code == 0, ended.err
    said = f"array: {count}, {names}; 0.00 credits/h while all of them run, each as follows"
    assert said in ended.out.splitlines()
    found = desk.json("submit", "job.yaml", "--dry-run")["array"]
    assert found == {"job_count": int(count.split(maxsplit=1)[0]), "microcredits_per_hour": 0}
    nowhere = desk.baseload("submit", "job.yaml", "--dry-run", "--gpus", "A100:8")
    assert (nowhere.code, f"array: {count}, {names}\n" in nowhere.out) == (1, True)


def test_all_jobs_of_an_array_cost_what_its_workers_cost_together() -> None:
    offer = {"microcredits_per_hour": 1_500_000, "price_is_estimate": True}
    found = {"placeable": True, "offers": [offer], "worker_count": 2}
    said = array_text({"name": "lr", "array": [{}, {}, {}]}, found)
    assert said.startswith("array: 3 jobs, lr-0 to lr-2; about 9.00 credits/h")
    assert array_text({"name": "lr"}, found) == ""


def test_a_dry_run_as_json_hides_the_values_of_variables(desk: Desk, folder: Path) -> None:
    _ready_node(desk)
    found = desk.json("submit", "job.yaml", "--dry-run", "--env", "TOKEN=hush-hush")
    assert found["job"]["environment"]["variables"] == {"TOKEN": "********"}
    assert found["code"]["file_count"] == 4
    assert found["code"]["largest"][0] == {"name": "weights.pt", "bytes": 5000}
    assert {"name": "data/", "by": ".gitignore"} in found["code"]["left_out"]
    assert found["preview"]["placeable"] is True


def test_a_dry_run_of_a_job_that_fits_nowhere_says_why_and_is_a_negative_answer(
    desk: Desk, folder: Path
) -> None:
    _ready_node(desk)
    ended = desk.baseload("submit", "job.yaml", "--dry-run", "--gpus", "A100:8")
    assert ended.code == 1
    assert "no machine here can ever run it" in ended.err
    assert "REFUSED" in ended.out


def test_each_submission_says_where_the_job_fits(desk: Desk, folder: Path) -> None:
    _ready_node(desk)
    ended = desk.baseload("submit", "job.yaml")
    assert (ended.code, "fits: n1, 0.00 credits/h" in ended.err) == (0, True)
    assert "left out: data/ (.gitignore)" in ended.err
    large = desk.baseload("submit", "job.yaml", "--set", "resources.cpu_count=64")
    assert large.code == 0
    assert "no machine here can ever run it" in large.err
    assert "fits" not in json.dumps(desk.json("submit", "job.yaml")), "stdout is the job alone"


def test_a_job_that_is_refused_is_refused_before_its_code_is_sent(desk: Desk, folder: Path) -> None:
    ended = desk.baseload("submit", "job.yaml", "--gpus", "H1000:4", "--set", "colour=red")
    assert ended.code == 3
    assert "--gpus: resources.gpus: " in ended.err
    assert "--set colour: colour: " in ended.err
    assert desk.site.rows(tables.Upload) == []


def test_options_and_a_command_replace_what_the_file_says(desk: Desk, folder: Path) -> None:
    (folder / "variables").write_text("SEED=7\n")
    job = _json(
        desk, "submit", "job.yaml", "--name", "other", "--env", "EPOCHS=3", "--env-file",
        "variables", "--set", "priority=1", "--", "python", "train.py", "--fast",
    )  # fmt: skip
    assert (job["name"], job["priority"]) == ("other", 1)
    assert job["commands"] == [{"command": "python train.py --fast"}]
    (row,) = desk.site.rows(tables.Job, id=job["id"])
    assert open_variables(row.id, row.sealed_variables) == {"EPOCHS": "3", "SEED": "7"}
    assert row.spec["code"]["upload_id"].startswith("upl-")


def test_a_command_runs_as_a_job_with_the_folder_here_as_its_code(desk: Desk, folder: Path) -> None:
    job = _json(desk, "run", "-d", "--env", "SEED=7", "python", "train.py", "--lr", "0.1")
    assert (job["name"], job["type"]) == ("work", "training")
    assert job["commands"] == [{"command": "python train.py --lr 0.1"}]
    assert job["resources"]["gpus"] == "cpu"
    assert job["resources"]["cpu_count"] == 1
    assert job["code"]["upload_id"].startswith("upl-")
    gpu = _json(
        desk, "run", "-d", "--gpus", "A100:2", "--cpus", "8", "--memory-gib", "16", "--image",
        "docker.io/library/python:3.12", "--name", "big", "--", "nvidia-smi",
    )  # fmt: skip
    assert (gpu["name"], gpu["resources"]["gpus"]) == ("big", "A100:2")
    assert (gpu["resources"]["cpu_count"], gpu["resources"]["memory_gib"]) == (8, 16)
    assert gpu["environment"]["image"] == "docker.io/library/python:3.12"


def test_options_may_stand_behind_a_script(desk: Desk, folder: Path) -> None:
    (folder / "train.py").write_text("print(1)")
    job = _json(
        desk, "run", "train.py", "-d", "--provider", "runpod", "--gpus", "A100:1",
        "--price-cap", "2.50", "--", "--lr", "0.1",
    )  # fmt: skip
    assert job["commands"] == [{"command": "python train.py --lr 0.1"}]
    assert job["resources"]["gpus"] == "A100:1"
    assert job["placement"]["providers"] == ["runpod"]
    assert job["safety"]["price_cap_microcredits_per_hour"] == 2_500_000


def test_a_command_without_words_or_in_the_home_folder_is_a_mistake(
    desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.baseload("run", "--detach").code == 2
    missing = desk.baseload("run", "-d", "--requirements", "none.txt", "--", "true")
    assert (missing.code, "none.txt: there is no such file" in missing.err) == (2, True)
    monkeypatch.setenv("HOME", str(folder))
    whole = desk.baseload("run", "-d", "--", "true")
    assert (whole.code, "as a whole would be sent" in whole.err) == (2, True)
    assert desk.site.rows(tables.Job) == []


def test_the_highest_price_of_offers_is_asked_in_credits(desk: Desk) -> None:
    assert desk.baseload("credit", "add", "25").code == 0
    _ready_node(desk)
    assert desk.baseload("offers", "--max-price", "2.5").code == 0
    refused = desk.baseload("offers", "--max-price", "much")
    assert (refused.code, "asked credits, found 'much'" in refused.err) == (2, True)


def test_offers_show_whose_they_are_what_they_cost_and_how_old_their_prices_are(desk: Desk) -> None:
    assert desk.baseload("credit", "add", "25").code == 0
    now = datetime.now(UTC)
    with desk.site.database.write() as session:
        account = session.exec(select(tables.Account)).one()
        work = add_marketplace(session, account, rental(), name="work")
        spare = add_marketplace(session, account, name="spare")
        read_before = now - timedelta(hours=1)
        keep_offers(session, work.provider_id, [rental()], now)
        keep_offers(session, spare.provider_id, [rental("secure", 2_000_000)], read_before)
        session.flush()
    ended = desk.baseload("offers", "--gpus", "A100-80GB")
    assert ended.code == 0, ended.err
    first, second = (line for line in ended.out.splitlines() if "(runpod)" in line)
    assert ("work (runpod)" in first, "about" in first, " s ago" in first) == (True, False, True)
    assert ("spare (runpod)" in second, "about 2.00" in second, "1 h" in second) == (True,) * 3
    asked = ("offers", "--gpus", "A100-80GB", "--provider", "spare", "--provider", "runpod")
    assert [one["provider_name"] for one in desk.json(*asked)["offers"]] == ["spare", "work"]
    refused = desk.baseload("offers", "--provider", "spore")
    assert (refused.code, "did you mean spare" in refused.err) == (3, True)
