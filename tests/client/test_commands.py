"""Commands against the real API: what they change, what they print, how they end."""

import json
import shlex
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import output_name
from api.authorization import hash_of
from tests.api.http_server import host_key, tar_gz
from tests.client.conftest import Desk

JOB_FILE = """\
name: digits
type: training
resources: {gpus: cpu, cpu_count: 1}
code: {path: .}
workers:
  - command: python train.py
"""


def _region(desk: Desk) -> str:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status="ready")
    region = desk.json("region", "create", "home", "--relax", "all", "--shared")
    desk.site.set(tables.Region, region["id"], status="healthy")
    return str(region["id"])


def _node(desk: Desk, **values: Any) -> dict[str, Any]:
    _region(desk)
    _, minion_id = host_key()
    node: dict[str, Any] = desk.json(
        "node", "add", "n1", "--region", "home", "--minion-id", minion_id, "--port", "2222"
    )
    desk.site.set(tables.Node, node["id"], host="10.0.0.1", **values)
    return node


def _job(desk: Desk) -> dict[str, Any]:
    (desk.folder / "job.yaml").write_text(JOB_FILE)
    (desk.folder / "train.py").write_text("print('hello')")
    job: dict[str, Any] = desk.json("submit", "job.yaml")
    return job


def test_an_array_is_submitted_at_once_and_shown_by_its_first_and_last_job(desk: Desk) -> None:
    (desk.folder / "job.yaml").write_text(JOB_FILE + "array: [{LR: 0.1}, {LR: 0.01}, {}]\n")
    (desk.folder / "train.py").write_text("print('hello')")
    ended = desk.baseload("submit", "job.yaml", "--name", "search", "--follow")
    assert ended.code == 0, ended.err
    rows = sorted(desk.site.rows(tables.Job), key=lambda row: row.id)
    assert [row.name for row in rows] == ["search-0", "search-1", "search-2"]
    assert "search: submitted 3 jobs, search-0 (job-" in ended.out
    assert "not followed" in ended.err


def test_a_join_token_is_shown_as_the_command_to_run_on_the_machine(desk: Desk) -> None:
    region_id = _region(desk)
    ended = desk.baseload("node", "join-token", "--region", "home", "--expires-in-hours", "2")
    assert ended.code == 0, ended.err
    [line] = ended.out.splitlines()
    words = shlex.split(line)
    begins, options = words[: words.index("--") + 1], words[words.index("--") + 1 :]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert begins == ["curl", "-fsS", f"{given['--api']}/join.sh", "|", "sh", "-s", "--"]
    assert urlsplit(given["--api"]).port == urlsplit(desk.url).port
    # The API of this test listens on the loopback alone, which is of no use to another machine.
    assert ("BASELOAD_API=0.0.0.0:8700" in ended.err) is (given["--api"] != desk.url)
    assert given["--key"].startswith("restrict ssh-ed25519 ")
    [row] = desk.site.rows(tables.JoinToken, region_id=region_id)
    assert row.secret_sha256 == hash_of(given["--token"])
    assert row.expires_at - row.created_at == timedelta(hours=2)
    assert "--service storage" not in ended.err
    desk.site.set(tables.Region, region_id, storage_mode="central")
    central = desk.baseload("node", "join-token", "--region", "home")
    assert "its storage node comes first: add it with --service storage" in central.err


def test_a_node_is_shown_with_what_it_does_for_its_region(desk: Desk) -> None:
    node_id = _node(desk)["id"]
    desk.site.set(tables.Node, node_id, services=["compute", "storage"])
    shown = desk.baseload("node", "show", node_id).out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in shown if line.startswith("services")] == [
        "compute, storage"
    ]


def test_apt_packages_of_others_are_allowed_and_forbidden_again(desk: Desk) -> None:
    _region(desk)
    for option, allowed in (("--apt-packages", True), ("--no-apt-packages", False)):
        assert desk.json("region", "change", "home", option)["allows_apt_packages"] is allowed
    ended = desk.baseload("region", "change", "home")
    assert (ended.code, "--apt-packages" in ended.err) == (2, True)


def test_a_machine_becomes_a_node_by_names_alone(desk: Desk) -> None:
    node = _node(desk, status="maintenance")
    (row,) = desk.site.rows(tables.Node, id=node["id"])
    assert (row.port, row.name) == (2222, "n1")
    (region,) = desk.site.rows(tables.Region, id=row.region_id)
    assert (region.exclusive_nodes, region.relaxed_requirements) == (False, ["all"])
    assert desk.baseload("node", "activate", "n1").code == 0
    assert desk.baseload("node", "reboot", "n1", "--force").code == 0
    assert desk.site.asked_of(node["id"])[-2:] == [("wake", None), ("reboot", {"force": True})]
    assert [each["id"] for each in desk.json("node", "ls", "--region", "home")["items"]] == [
        node["id"]
    ]


def test_a_job_file_becomes_an_upload_and_a_job(desk: Desk) -> None:
    job = _job(desk)
    assert job["code"]["upload_id"].startswith("upl-")
    again = desk.json("submit", "job.yaml", "--name", "second")
    uploads = {upload.sha256 for upload in desk.site.rows(tables.Upload)}
    assert len(uploads) == 1, "the same code packs to the same bytes"
    assert (again["name"], job["name"]) == ("second", "digits")
    assert [each["name"] for each in desk.json("ps")["items"]] == ["second", "digits"]


def test_jobs_are_labelled_and_listed_by_label(desk: Desk) -> None:
    _job(desk)
    second = desk.json(
        "submit", "job.yaml", "--name", "second", "--label", "team=vision", "--label", "run=2"
    )
    assert second["labels"] == {"team": "vision", "run": "2"}
    assert [each["name"] for each in desk.json("ps", "--label", "team=vision")["items"]] == [
        "second"
    ]
    assert desk.json("ps", "--label", "team", "--label", "run=3")["items"] == []
    assert "team=vision, run=2" in desk.baseload("show", "second").out
    refused = desk.baseload("ps", "--label", "=x")
    assert refused.code == 3
    assert "is KEY=VALUE" in refused.err


def test_every_mistake_in_a_job_file_is_shown_at_once_with_its_line(desk: Desk) -> None:
    (desk.folder / "job.yaml").write_text(
        "name: ''\ntype: training\nresources:\n  gpus: H1000:4\n  disk_size_gb: 5\n"
        "colour: red\nworkers:\n  - command: ''\n"
    )
    ended = desk.baseload("submit", "job.yaml")
    assert (ended.code, ended.out) == (3, "")
    for place in (
        "job.yaml:1: name: ",
        "job.yaml:4: resources.gpus: ",
        "job.yaml:5: resources.disk_size_gb: ",
        "job.yaml:6: colour: ",
        "job.yaml:8: workers.0.command: ",
    ):
        assert place in ended.err
    assert "(found 5)" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "job.yaml:1:8: is no YAML: expected the node content"),
        (
            "name: a\nworkers: [a\nport: 3\n",
            "begun at line 2\n  port: 3\n      ^",
        ),
        ("a: b: c", "job.yaml:1:5: is no YAML: mapping values are not allowed here"),
        ("name: 'a\n", "job.yaml:2:1: is no YAML: found unexpected end of stream"),
        ("name: \x01", "job.yaml:1:7: is no YAML: found the character #x0001"),
        ("a: 1\n---\nb: 2", "job.yaml:2:1: is no YAML: expected a single document"),
        ("- a list", "asked a mapping"),
        ("name: a\nname: b\n", "job.yaml:2: name is there twice, first on line 1"),
        ("name: a\ncode: {path: nowhere}\n", "nowhere: does not exist"),
        ("name: a\ncode: {path: 7}\n", "job.yaml:2: code.path: asked a folder, found 7"),
        (
            "code: {path: .}\nenvironment:\n  requirements: needs.txt\n",
            "job.yaml:3: environment.requirements: needs.txt: there is no such file in the code",
        ),
        (
            "code: {path: .}\nenvironment: {requirements: __pycache__/needs.txt}\n",
            "job.yaml:2: environment.requirements: __pycache__/needs.txt is not sent",
        ),
        (
            "code: {path: .}\nenvironment: {requirements: ../needs.txt}\n",
            "job.yaml:2: environment.requirements: ../needs.txt is not sent",
        ),
    ],
)
def test_a_job_file_that_cannot_be_read_asks_nothing_of_the_api(
    desk: Desk, text: str, said: str
) -> None:
    (desk.folder / "job.yaml").write_text(text)
    (desk.folder / "__pycache__").mkdir()
    for path in (desk.folder / "__pycache__", desk.folder.parent):
        (path / "needs.txt").write_text("numpy\n")
    ended = desk.baseload("submit", "job.yaml")
    assert ended.code == 2
    assert said in ended.err
    assert desk.site.rows(tables.Job) == []


def test_exit_codes_tell_scripts_what_happened(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.baseload("ps").code == 0
    assert desk.baseload("offers", "--gpus", "A100:4").code == 1
    assert desk.baseload("ps", "--no-such-option").code == 2
    assert desk.baseload("show", "nobody").code == 2
    assert desk.baseload("show", f"job-{'0' * 26}").code == 3
    assert desk.baseload("submit", "nowhere.yaml").code == 2
    monkeypatch.setenv("BASELOAD_API_KEY", "bl_wrong")
    refused = desk.baseload("ps")
    assert (refused.code, "unauthorized" in refused.err) == (3, True)
    gone = desk.baseload("ps", "--api", "http://127.0.0.1:1")
    assert (gone.code, "http://127.0.0.1:1" in gone.err) == (4, True)
    monkeypatch.delenv("BASELOAD_API_KEY")
    monkeypatch.setenv("HOME", str(desk.folder))
    monkeypatch.delenv("BASELOAD_HOME", raising=False)
    missing = desk.baseload("ps")
    assert (missing.code, "BASELOAD_API_KEY" in missing.err) == (2, True)


def test_a_name_means_the_newest_job_where_it_is_only_read(desk: Desk) -> None:
    first, second = _job(desk), _job(desk)
    ended = desk.baseload("show", "digits", "--json")
    assert (ended.code, json.loads(ended.out)["id"]) == (0, second["id"])
    assert f"2 jobs have the name 'digits'; this is the newest: {second['id']}" in ended.err
    assert desk.json("show", first["id"])["id"] == first["id"]
    assert desk.json("placement", "digits")["job_id"] == second["id"]
    desk.site.set(tables.Job, second["id"], status="removing")
    assert desk.json("show", "digits")["id"] == first["id"]
    told = desk.baseload("events", "digits")
    assert told.code == 0, told.err


def test_a_name_means_the_only_job_that_has_not_ended_where_it_is_changed(desk: Desk) -> None:
    first, second = _job(desk), _job(desk)
    refused = desk.baseload("cancel", "digits")
    assert refused.code == 2
    assert first["id"] in refused.err
    assert second["id"] in refused.err
    desk.site.set(tables.Job, second["id"], status="finished")
    assert desk.baseload("cancel", "digits").code == 0
    assert [verb for verb, _ in desk.site.asked_of(first["id"])] == ["start", "cancel"]
    assert [verb for verb, _ in desk.site.asked_of(second["id"])] == ["start"]
    assert desk.baseload("rm", "digits").code == 2, "which one is gone for good, a person says"


def test_an_output_that_was_fetched_is_not_sent_as_code(desk: Desk) -> None:
    job = _job(desk)
    store = blob_store(settings().storage)
    store.put(output_name(job["id"], 0, 1), tar_gz({"weights": b"large"}))
    fetched = desk.baseload("output", "digits")
    assert (fetched.code, (desk.folder / job["id"] / "weights").read_bytes()) == (0, b"large")
    again = desk.baseload("submit", "job.yaml")
    assert f"{job['id']}, the output of a job" in again.err
    assert "code: 2 files" in again.err

    mine = desk.folder / "mine"
    mine.mkdir()
    (mine / "helper.py").write_text("pass")
    assert desk.baseload("output", job["id"], "--to", "mine").code == 0
    assert "code: 4 files" in desk.baseload("submit", "job.yaml").err, "a folder of one's own is"


def test_an_output_without_files_says_where_they_were_looked_for(desk: Desk) -> None:
    job = _job(desk)
    blob_store(settings().storage).put(output_name(job["id"], 0, 1), tar_gz({}))
    assert "has left no file in $BASELOAD_OUTPUT" in desk.baseload("output", "digits").err


def test_a_status_that_no_job_has_is_refused_with_the_nearest(desk: Desk) -> None:
    refused = desk.baseload("ps", "--status", "wating_for_data")
    assert (refused.code, "did you mean waiting_for_data?" in refused.err) == (3, True)
    assert desk.baseload("ps", "--status", "waiting_for_data").code == 0


def test_results_that_are_not_json_have_no_colours_and_line_up(desk: Desk) -> None:
    _node(desk, status="active", gpu_type="A100", gpu_count=4)
    job = _job(desk)
    for arguments in (
        ("status",), ("provider", "ls"), ("provider", "show", "physical"), ("region", "ls"),
        ("region", "show", "home"), ("node", "ls"), ("node", "show", "n1"), ("ps",),
        ("show", "digits"), ("placement", "digits"), ("charges", "digits"), ("events",),
        ("events", "n1"), ("bill",), ("key", "ls"), ("logs", "digits"),
    ):  # fmt: skip
        ended = desk.baseload(*arguments)
        assert ended.code == 0, (arguments, ended.err)
        assert "\x1b" not in ended.out + ended.err
    head, row = desk.baseload("node", "ls").out.splitlines()
    assert head.split() == ["ID", "NAME", "STATUS", "GPUS", "CPUS", "MEMORY", "ADDRESS", "REASON"]
    assert row.index("4 x A100") == head.index("GPUS")
    assert job["id"] in desk.baseload("ps").out


def test_a_job_that_waits_for_gpus_says_so(desk: Desk) -> None:
    job = _job(desk)
    (row,) = desk.site.rows(tables.Job, id=job["id"])
    refusal = {"offer_id": "n", "region_id": None, "code": "gpu-count", "detail": "", "ever": True}
    desk.site.set(
        tables.Job, job["id"], status="waiting_for_resources", placement_refusals=[refusal],
        spec={**row.spec, "resources": {"gpus": "A100:1"}},
    )  # fmt: skip
    assert "waiting for resources: GPUs" in desk.baseload("ps").out
    assert "waiting for resources: GPUs" in desk.baseload("show", "digits").out


def test_json_has_the_shape_of_the_api_and_nothing_else_on_stdout(desk: Desk) -> None:
    _node(desk, status="active")
    job = _job(desk)
    for noun in ("provider", "region", "node", "key"):
        assert set(desk.json(noun, "ls")) == {"items"}
    parts = {"api", "ready", "platform", "account", "counts", "machines"}
    assert set(desk.json("status")) == parts
    assert desk.json("placement", job["id"])["job_id"] == job["id"]
    assert desk.json("charges", job["id"])["charged_microcredits"] == 0
    assert set(desk.json("bill")) >= {"lines", "opening_microcredits", "closing_microcredits"}
    lines = desk.baseload("events", job["id"], "--json").out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["job.requested"]


def test_verbs_reach_the_workflow_of_the_job(desk: Desk) -> None:
    job = _job(desk)
    assert desk.baseload("cancel", "digits").code == 0
    assert desk.baseload("cancel", "digits", "--discard").code == 0
    _, *asked = desk.site.asked_of(job["id"])
    assert [(verb, sent["discards"]) for verb, sent in asked] == [
        ("cancel", False),
        ("cancel", True),
    ]
    stopping = desk.baseload("stop", "digits")
    assert (stopping.code, "conflict" in stopping.err or "invalid" in stopping.err) == (3, True)
    assert desk.baseload("rm", "digits").code == 3
    desk.site.set(tables.Job, job["id"], status="failed")
    assert desk.baseload("rm", "digits").code == 0


def test_all_jobs_end_when_told_and_nobody_is_asked(desk: Desk) -> None:
    jobs = {_job(desk)["id"], _job(desk)["id"]}
    assert set(desk.json("kill-all", "--yes")["job_ids"]) == jobs


@pytest.mark.parametrize(
    ("amount", "microcredits"), [("25", 25_000_000), ("0.000001", 1), ("1.5", 1_500_000)]
)
def test_credits_are_given_exactly(desk: Desk, amount: str, microcredits: int) -> None:
    assert desk.baseload("credit", "add", amount).code == 0
    (line,) = desk.json("bill")["lines"]
    assert line["amount_microcredits"] == microcredits
    assert desk.json("status")["account"]["balance_microcredits"] == microcredits


@pytest.mark.parametrize("amount", ["much", "0.0000001", "nan", "inf"])
def test_credits_that_are_no_amount_are_refused_here(desk: Desk, amount: str) -> None:
    assert desk.baseload("credit", "add", amount).code == 2


def test_a_payment_gives_its_credits_once_and_is_listed(desk: Desk) -> None:
    asked = ("credit", "record", "25", "--reference", "INV-7")
    first, again = desk.json(*asked), desk.json(*asked)
    assert first["id"] == again["id"]
    assert desk.baseload("credit", "add", "1").code == 0
    lines = desk.baseload("credit", "ls").out.splitlines()
    assert [line.split()[-2] for line in lines[-2:]] == ["given", "INV-7"]
    assert desk.json("status")["account"]["balance_microcredits"] == 26_000_000
    too_small = desk.baseload("credit", "record", "24.999999", "--reference", "INV-8")
    assert too_small.code == 3
    assert "at least 25 credits" in too_small.err


def test_the_statement_is_exported(desk: Desk) -> None:
    given = desk.baseload("credit", "add", "25")
    assert given.code == 0, given.err
    lines = desk.baseload("bill", "--csv").out.splitlines()
    assert len(lines) >= 2
    assert "25000000" in lines[-1] or "25000000" in lines[1]


def test_a_key_is_shown_once_works_and_is_revoked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk.baseload("key", "create", "reader", "--scope", "read")
    secret = made.out.strip()
    assert secret.startswith("bl_")
    with monkeypatch.context() as other:
        other.setenv("BASELOAD_API_KEY", secret)
        assert desk.baseload("ps").code == 0
        assert desk.baseload("kill-all", "--yes").code == 3
    assert secret not in desk.baseload("key", "ls", "--json").out
    assert desk.baseload("key", "rm", "reader").code == 0
    monkeypatch.setenv("BASELOAD_API_KEY", secret)
    assert desk.baseload("ps").code == 3


def test_the_audit_log_is_listed_and_a_change_of_it_is_found(desk: Desk) -> None:
    job = _job(desk)
    rows = desk.baseload("audit", "ls", "--resource", job["id"]).out.splitlines()
    assert [row.split()[2:4] for row in rows[1:]] == [["submit_job", job["id"]]]
    assert desk.json("audit", "verify")["intact"] is True
    with desk.site.database.connection() as connection:
        connection.execute(text("DROP TRIGGER audit_refuse_update"))
        connection.execute(text("UPDATE audit SET key_id = 'key-0' WHERE action = 'submit_job'"))
    (entry,) = desk.site.rows(tables.AuditRow, action="submit_job")
    ended = desk.baseload("audit", "verify")
    assert ended.code == 1
    assert f"{entry.id}: is not as it was written" in ended.err


def test_the_statement_of_a_project_names_each_transaction(desk: Desk) -> None:
    assert desk.baseload("credit", "add", "25").code == 0
    (line,) = desk.json("statement")["lines"]
    shown = desk.baseload("statement").out
    assert line["transaction_id"] in shown
    assert "from 0.00 to 25.00 credits" in shown
    of_project = desk.json("statement", "--project", desk.person.project_id)
    assert (of_project["lines"], of_project["closing_microcredits"]) == ([], 0)
    assert desk.baseload("statement", "--project", "nobody").code == 2
    assert desk.baseload("statement", "--csv").out == desk.baseload("bill", "--csv").out


def test_a_statement_of_several_pages_is_shown_up_to_its_limit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baseload.commands.billing.PAGE", 2)
    for _ in range(5):
        assert desk.baseload("credit", "add", "1").code == 0
    whole = desk.json("statement")
    assert [line["balance_microcredits"] for line in whole["lines"]] == [
        number * 1_000_000 for number in range(1, 6)
    ]
    assert whole["next"] is None
    some = desk.baseload("statement", "--limit", "3")
    assert "There are more lines" in some.err
    assert desk.json("statement", "--limit", "3")["lines"] == whole["lines"][:3]


def test_usage_and_costs_are_shown_and_exported(desk: Desk) -> None:
    assert set(desk.json("usage", "--by", "month")) >= {"items", "is_whole"}
    assert desk.json("costs", "--by", "region")["total_microcredits"] == 0
    assert desk.baseload("usage").out.split()[:2] == ["FROM", "CONSUMER"]
    assert "0.00 credits" in desk.baseload("costs").out
    assert desk.baseload("usage", "--csv").out.startswith("begins_at,consumer_account_id,")
    assert desk.baseload("costs", "--by", "project", "--csv").out.startswith("key,name,charged_")


def test_a_transaction_is_taken_back_and_the_ledger_is_audited(desk: Desk) -> None:
    assert desk.baseload("credit", "add", "25").code == 0
    (line,) = desk.json("statement")["lines"]
    made = desk.baseload("admin", "reverse", line["transaction_id"], "--reason", "a mistake")
    assert "-25.00 credits" in made.out, made.err
    assert desk.json("statement")["closing_microcredits"] == 0
    clean = desk.baseload("admin", "audit")
    assert (clean.code, "2 transactions, 4 postings" in clean.out) == (0, True)
    credits_name = f"account/{desk.person.account_id}/credits"
    with desk.site.database.write() as session:
        session.get_one(tables.LedgerAccount, credits_name).balance_microcredits = 7
    wrong = desk.baseload("admin", "audit")
    assert wrong.code == 1
    assert f"balances: {credits_name}: the balance is the sum of the postings" in wrong.err
    assert "expected 0, found 7" in wrong.err
    assert not desk.baseload("admin", "audit", "--json").out.startswith("check")


def test_the_owner_of_a_region_says_which_guests_come(desk: Desk) -> None:
    _region(desk)
    assert desk.json("region", "change", "home", "--public")["public"] is True
    shown = desk.baseload("region", "guests", "home")
    assert shown.out.strip() == "home: jobs of every account; never pre-empted"
    options = (
        "--from-account acc-1 --from-project prj-2 --hours 22-6 --most-gpus 4 --preempt-after 600"
    )
    changed = desk.baseload("region", "guests", "home", *options.split())
    assert changed.out.strip() == (
        "home: jobs of acc-1, prj-2; from 22:00 to 6:00 UTC; at most 4 GPUs; pre-empted after 600 s"
    )
    policy = desk.json("region", "guests", "home", "--everyone")["guest_policy"]
    assert (policy["accounts"], policy["most_gpus"]) == ([], None)
    assert desk.baseload("region", "guests", "home", "--hours", "at night").code != 0
