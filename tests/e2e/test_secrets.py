"""Values of variables and secrets: the job sees them, and nothing and nobody else does.

A running job holds two values that occur nowhere by chance; then everything that is written down
anywhere is searched for them. That the search finds what is there, the job's id shows each time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from tests.e2e.platform import Platform, Refused, Site
from tests.e2e.stack import RunningStack
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

HASHES = (
    'key=$(grep -o "key-[0-9a-f]*" "$KAGGLE_CONFIG_DIR/kaggle.json"); '
    'for value in "$VARIABLE" "$SECRET" "$key"; do printf %s "$value" | sha256sum; done'
)
WHO = "echo uid $(id -u); cat ../spec.json; cat /proc/1/environ; sudo -n id; echo looked"
NODE_FOLDER = "/var/lib/baseload"


@dataclass
class Guarded:
    """A running job with values to guard, and another that has failed in their use."""

    machine: Machine
    job: str
    failed: str
    variable: str = field(default_factory=lambda: f"variable-{uuid4().hex}")
    secret: str = field(default_factory=lambda: f"secret-{uuid4().hex}")
    key: str = field(default_factory=lambda: f"key-{uuid4().hex}")
    """Of another service, which the running job attaches and finds in a file."""
    command_lines: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.job.rsplit("/", 1)[1]

    @property
    def values(self) -> tuple[bytes, ...]:
        return self.variable.encode(), self.secret.encode(), self.key.encode()

    def shown_in(self, content: bytes) -> list[bytes]:
        """The values that this content shows."""
        return [value for value in self.values if value in content]


@pytest.fixture(scope="module")
def guarded(lab: Lab, platform: Platform, make_site: Callable[..., Site]) -> Iterator[Guarded]:
    machine, site = lab.add("vault"), make_site()
    site.join(machine)
    found = Guarded(machine, "", "")
    project = platform.get("/v1/account")["personal_project_id"]
    body = {"name": "token", "value": found.secret}
    reference = platform.post(f"/v1/projects/{project}/secrets", body)["reference"]
    environment = {"variables": {"VARIABLE": found.variable}, "secrets": {"SECRET": reference}}
    platform.post(
        f"/v1/projects/{project}/credentials", {"type": "kaggle", "value": f"ada:{found.key}"}
    )
    running, failing = f"{HASHES}; {WHO}; exec sleep 6031", '"$SECRET" --now'
    attaching = {**environment, "credentials": ["kaggle"]}
    found.job = platform.job(running, site.region_id, environment=attaching)
    found.failed = platform.job(failing, site.region_id, environment=environment)
    watch(platform, found)
    yield found
    lab.remove("vault")


def watch(platform: Platform, guarded: Guarded) -> None:
    """Until the one job has looked around and the other has failed; all command lines are kept."""

    def looked() -> bool:
        guarded.command_lines.update(guarded.machine.command_lines())
        return platform.log(guarded.job).endswith("looked\n")

    wait_until(looked, "the job looks around", 150)
    platform.until_status(guarded.failed, "failed", limit_s=150)
    guarded.command_lines.update(guarded.machine.command_lines())
    platform.until_status(guarded.job, "running")


def files_below(*folders: Path) -> dict[str, bytes]:
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def test_the_job_itself_sees_its_values(platform: Platform, guarded: Guarded) -> None:
    told = platform.log(guarded.job).splitlines()
    hashes = [hashlib.sha256(value).hexdigest() for value in guarded.values]
    assert [line.split()[0] for line in told[:3]] == hashes


def test_a_job_is_an_ordinary_user_on_a_machine_of_roots(
    platform: Platform, guarded: Guarded
) -> None:
    told = platform.log(guarded.job)
    [uid] = [line.split()[1] for line in told.splitlines() if line.startswith("uid ")]
    assert int(uid) > 0
    assert "spec.json: Permission denied" in told, "what it was started with is the agent's alone"
    assert "/proc/1/environ: No such file" in told, "it sees no process of others"
    assert "uid=0" not in told
    process = f"/proc/{sleeping(guarded.machine)}/status"
    status = dict(
        line.split(":", 1) for line in Path(process).read_text().splitlines() if ":" in line
    )
    assert status["Uid"].split() == [uid] * 4
    assert status["NoNewPrivs"].strip() == "1"
    assert int(status["CapEff"], 16) == 0


def sleeping(machine: Machine) -> int:
    """The job's process, as the host numbers it."""
    for pid in machine.pids():
        if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x006031\0":
            return pid
    raise AssertionError("the job does not run")


def test_no_history_of_any_workflow_shows_a_value(stack: RunningStack, guarded: Guarded) -> None:
    histories = asyncio.run(all_histories(stack.temporal_address))
    shown = [name for name, content in histories.items() if guarded.shown_in(content)]
    assert shown == []
    assert guarded.id.encode() in histories[f"job/{guarded.id}"]
    assert not any(b"sha256sum" in content for content in histories.values()), "the command"


async def all_histories(address: str) -> dict[str, bytes]:
    """Every event of every workflow with its payloads, which nothing encodes, and the memo."""
    client = await Client.connect(address)
    found: dict[str, bytes] = {}
    async for workflow in client.list_workflows():
        handle = client.get_workflow_handle(workflow.id, run_id=workflow.run_id)
        events = [event async for event in handle.fetch_history_events()]
        content = b"".join(event.SerializeToString() for event in events)
        described = (await handle.describe()).raw_description.SerializeToString()
        found[workflow.id] = found.get(workflow.id, b"") + content + described
    return found


def test_no_file_of_the_platform_shows_a_value(stack: RunningStack, guarded: Guarded) -> None:
    """Database, Temporal's database, logs of all processes, object store: all that it has."""
    files = files_below(stack.home)
    assert [name for name, content in files.items() if guarded.shown_in(content)] == logs_of(
        guarded.failed, files
    ), "the log of the job that printed it, and nothing else"
    showing = {Path(name).name for name, content in files.items() if guarded.id.encode() in content}
    assert {"baseload.db", "temporal.db"} & {name.removesuffix("-wal") for name in showing} == {
        "baseload.db", "temporal.db",
    }  # fmt: skip
    orders = [name for name in files if f"/orders/{guarded.id}/" in name]
    assert orders, "the sealed order lies there while the job runs"


def logs_of(job: str, files: dict[str, bytes]) -> list[str]:
    folder = f"/logs/{job.rsplit('/', 1)[1]}/"
    return [name for name in files if folder in name and name.endswith(".log")]


def test_no_command_line_shows_a_value(guarded: Guarded) -> None:
    assert any("sleep 6031" in line for line in guarded.command_lines)
    assert any(line.endswith(".pyz start") for line in guarded.command_lines), "the supervisor"
    assert not any(guarded.shown_in(line.encode()) for line in guarded.command_lines)


def test_on_the_machine_only_the_agent_and_the_run_can_read_the_values(guarded: Guarded) -> None:
    folder = guarded.machine.disk / NODE_FOLDER.lstrip("/")
    showing = [
        Path(name) for name, content in files_below(folder).items() if guarded.shown_in(content)
    ]
    owners = {path.name: path.stat().st_uid for path in showing}
    assert (set(owners), owners["spec.json"]) == ({"spec.json", "kaggle.json"}, 0)
    process = Path(f"/proc/{sleeping(guarded.machine)}")
    assert owners["kaggle.json"] == process.stat().st_uid > 0
    assert not any(path.stat().st_mode & 0o077 for path in showing)


def test_no_answer_of_the_api_shows_a_value(platform: Platform, guarded: Guarded) -> None:
    paths = [guarded.job, guarded.failed]
    paths += [f"{job}/{part}" for job in paths for part in ("events", "placement", "charges")]
    for path in [*paths, "/v1/jobs", "/v1/events", "/v1/audit", "/v1/transactions", "/metrics"]:
        answer = platform.ask("GET", path)
        assert guarded.shown_in(answer.content) == [], path
    project = platform.get("/v1/account")["personal_project_id"]
    listed = platform.ask("GET", f"/v1/projects/{project}/secrets")
    listed_keys = platform.ask("GET", f"/v1/projects/{project}/credentials")
    assert "kaggle" in listed_keys.text
    assert guarded.shown_in(listed_keys.content) == []
    assert "token" in listed.text
    assert guarded.shown_in(listed.content) == []


@pytest.mark.parametrize(
    "environment",
    [
        {"variables": {"TOKEN": ["{}"]}},
        {"variables": {"TOKEN": "{}\0"}},
        {"variables": {"BASELOAD_TOKEN": "{}"}},
        {"secrets": {"TOKEN": "{}"}},
        {"secrets": {"TOKEN": {"value": "{}"}}},
        {"variabels": {"TOKEN": "{}"}},
    ],
)
def test_a_refusal_does_not_repeat_what_could_be_a_secret(
    platform: Platform, stack: RunningStack, environment: dict[str, object]
) -> None:
    value = f"value-{uuid4().hex}"

    def filled(part: object) -> object:
        if isinstance(part, dict):
            return {name: filled(below) for name, below in part.items()}
        return [filled(below) for below in part] if isinstance(part, list) else (
            str(part).replace("{}", value)
        )  # fmt: skip

    with pytest.raises(Refused) as refused:
        platform.job("true", "reg-none", environment=filled(environment))
    assert refused.value.status == 422
    assert value not in str(refused.value.problem)
    assert not any(value.encode() in text for text in files_below(stack.home / "logs").values())


def test_what_a_job_leaves_where_everyone_writes_is_not_the_next_ones(
    platform: Platform, guarded: Guarded
) -> None:
    """An account is used again: what was left under it would be its next holder's."""
    region = platform.get(guarded.job)["placement"]["region_id"]
    places = "/tmp/left /var/tmp/left/below /dev/shm/left"
    leave = f"umask 077; mkdir /var/tmp/left; for one in {places}; do echo mine >$one; done; id -un"
    first = platform.job(leave, region)
    platform.until_status(first, "finished")
    second = platform.job(f"id -un; cat {places}", region)
    platform.until_status(second, "failed")
    account, *told = platform.log(second).splitlines()
    assert platform.log(first).splitlines() == [account], "the same account as before"
    assert len(told) == 3
    assert all("No such file" in line for line in told)


def test_when_the_job_is_over_its_order_and_its_folders_are_gone(
    platform: Platform, stack: RunningStack, guarded: Guarded
) -> None:
    """The last of them: it ends the job that the others look at."""
    platform.post(f"{guarded.job}/cancel")
    platform.until_status(guarded.job, "canceled")
    assert not any(f"/orders/{guarded.id}/" in name for name in files_below(stack.home))
    folder = guarded.machine.disk / NODE_FOLDER.lstrip("/")
    assert not any(guarded.shown_in(content) for content in files_below(folder).values())
