"""What is told: data that is where it is needed, once, in a region with central storage."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from tests.demo_data.reservation import service_with_a_name
from tests.demo_data.stack import Stage
from tests.demo_data.telling import NODES, REGION, STORAGE, WEB_BYTES, Telling
from tests.lab.file_servers import SMB_PASSWORD, SMB_USER
from tests.lab.machine import Machine
from workers.runner.commands import Commands, Resource
from workers.runner.local_node import shortened
from workers.runner.narration import Story

WEB_NAME, WEB_PATH = "numbers", "/numbers.bin"
FOLDER_NAME = "letters"
"""Of the dataset that is made from a folder of the NFS share, and of that folder."""
NFS_FILE = "words/list.txt"
WORDS = ("pear", "apple", "cherry")
OVERHEAD_BYTES = 20 << 20
"""What the platform sends to a machine for a job beside its data, at most."""
PASSWORD_VARIABLE = "BASELOAD_DATASTORE_PASSWORD"
JOB = """\
name: {name}
type: training
resources: {{gpus: cpu, cpu_count: 1, memory_gib: 1}}
data:
  datasets: [{datasets}]
  input:  {{type: regional, datastore_id: {sets}, path: words}}      # the NFS share
  output: {{type: regional, datastore_id: {results}, path: runs/{name}}}  # the SMB share
workers:
- command: |
    (cd "$BASELOAD_DATASETS" && sha256sum */*) > "$BASELOAD_OUTPUT/sha256.txt"
    sort "$BASELOAD_INPUT/list.txt" > "$BASELOAD_OUTPUT/sorted.txt"
"""


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    for name, step in STEPS:
        with story.step(name):
            step(telling)


def central_region(telling: Telling) -> None:
    """The storage node comes first, and is active by itself."""
    telling.baseload("credit", "add", "25")
    telling.baseload("provider", "enable", "physical", "--wait")
    telling.baseload("region", "create", REGION, "--storage", "central", "--relax", "all", "--wait")
    _join(telling, telling.stage.lab.add(STORAGE), "--service", "storage")
    telling.reached("nodes", STORAGE, "active")
    telling.baseload("node", "ls")


def compute_nodes(telling: Telling) -> None:
    """Two machines for jobs; a person decides when they take some."""
    for name in NODES:
        _join(telling, telling.stage.lab.add(name))
    for name in NODES:
        telling.reached("nodes", name, "maintenance")
    telling.baseload("node", "activate", NODES[0])
    telling.reached("nodes", NODES[0], "active")


def web_dataset(telling: Telling) -> None:
    """A file of a web server becomes a dataset: it is read once, checked and stored."""
    stage = telling.stage
    stage.web.files[WEB_PATH] = telling.numbers
    telling.baseload("dataset", "create", WEB_NAME, "--source", stage.web.url(WEB_PATH))
    telling.baseload("dataset", "show", WEB_NAME)
    found = telling.reached("datasets", WEB_NAME, "ready")
    telling.expect(f"it has the file's {WEB_BYTES} bytes", found["unpacked_bytes"] == WEB_BYTES)
    telling.expect("the web server has sent it once", _times_sent(telling) == 1)


def shares(telling: Telling) -> None:
    """Folders that servers of the region share already are registered, and used in place."""
    stage = telling.stage
    words = stage.nfs.shared / NFS_FILE
    words.parent.mkdir(parents=True)
    words.write_text("".join(f"{word}\n" for word in WORDS))
    telling.tell(f"on the NFS server: {words} ({words.stat().st_size} bytes)")
    nfs = "--nfs", stage.nfs.address, "--root", str(stage.nfs.shared)
    telling.baseload("datastore", "add", "sets", "--region", REGION, *nfs, "--wait")
    smb = "--smb", stage.smb.address, "--root", "/data", "--user", SMB_USER
    os.environ[PASSWORD_VARIABLE] = SMB_PASSWORD
    try:
        telling.tell(f"(the password is in {PASSWORD_VARIABLE}, and never on a command line)")
        commands = Commands(stage.settings, telling.tell, shown=True)  # with this variable
        commands.baseload("datastore", "add", "results", "--region", REGION, *smb, "--wait")
    finally:
        del os.environ[PASSWORD_VARIABLE]
    telling.baseload("datastore", "ls")


def first_job(telling: Telling) -> None:
    """It needs the dataset and the NFS folder, and stores its output on the SMB share."""
    before = telling.stage.sent_bytes()
    job = _run(telling, "first")
    sent = telling.stage.sent_bytes() - before
    staged = _staged(telling, job)
    telling.expect("its node has fetched the dataset", staged["fetched_bytes"] >= WEB_BYTES)
    telling.expect(
        f"the platform has sent it to the region once: {_mib(sent)} on the cable",
        WEB_BYTES <= sent < WEB_BYTES + OVERHEAD_BYTES,
    )
    _check_output(telling, "first")


def second_job(telling: Telling) -> None:
    """The same data on the same node: nothing is fetched."""
    before = telling.stage.sent_bytes()
    job = _run(telling, "second")
    sent = telling.stage.sent_bytes() - before
    telling.expect("it has fetched nothing", _staged(telling, job)["fetched_bytes"] == 0)
    telling.expect(f"{_mib(sent)} on the cable", sent < OVERHEAD_BYTES)
    telling.expect("the web server has still sent it once", _times_sent(telling) == 1)
    _check_output(telling, "second")


def dataset_of_share(telling: Telling) -> None:
    """A node of the region reads a folder of the NFS share, whose files become a dataset."""
    for name, content in telling.letters.items():
        file = telling.stage.nfs.shared / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        telling.tell(f"on the NFS server: {file} ({len(content)} bytes)")
    source = f"datastore:sets/{FOLDER_NAME}"
    telling.baseload("dataset", "create", FOLDER_NAME, "--source", source)
    found = telling.reached("datasets", FOLDER_NAME, "ready")
    asked = sum(map(len, telling.letters.values()))
    seen = found["unpacked_bytes"], found["file_count"]
    telling.expect(f"it has the folder's 2 files and {asked} bytes", seen == (asked, 2))
    for name in telling.letters:
        (telling.stage.nfs.shared / name).unlink()
    telling.tell("the folder of the share is emptied: the dataset is a copy")


def job_on_other_node(telling: Telling) -> None:
    """Another node has it from the storage node: the platform sends nothing of it again."""
    telling.must_move_to(NODES[1])
    before = telling.stage.sent_bytes()
    job = _run(telling, "third", FOLDER_NAME)
    sent = telling.stage.sent_bytes() - before
    staged = _staged(telling, job)
    telling.expect(
        "its node has fetched the dataset from the storage node",
        staged["cached_bytes"] >= WEB_BYTES,
    )
    telling.expect(f"{_mib(sent)} on the platform's cable", sent < OVERHEAD_BYTES)
    _check_output(telling, "third", telling.letters)


def remove_everything(telling: Telling) -> None:
    """What was stored goes; what is on the shares stays, because it is theirs."""
    for name in (WEB_NAME, FOLDER_NAME):
        telling.baseload("dataset", "rm", name)
        telling.until(f"{name} is gone", partial(_is_gone, telling, "datasets", name))
    for name in ("sets", "results"):
        telling.baseload("datastore", "rm", name)
        telling.until(f"{name} is gone", partial(_is_gone, telling, "datastores", name))
    stored = sorted(path.name for path in (telling.stage.smb.shared / "runs").iterdir())
    telling.expect("the output is on the share still", stored == ["first", "second", "third"])


STEPS: tuple[tuple[str, Callable[[Telling], None]], ...] = (
    ("A region with central storage, its storage node first", central_region),
    ("Two compute nodes", compute_nodes),
    ("A dataset from a web server", web_dataset),
    ("An NFS and an SMB share, used in place", shares),
    ("The first job: its data come to the region", first_job),
    ("The second job: its data are there", second_job),
    ("A dataset from a folder of the NFS share", dataset_of_share),
    ("A job on the other node: the storage node has them", job_on_other_node),
    ("A service keeps its name on another node", service_with_a_name),
    ("All gone", remove_everything),
)
"""Each is told under its heading. One more step is a function, and its line here."""


def _join(telling: Telling, machine: Machine, *options: str) -> None:
    """What a person does: run join.sh on the machine, and add it by its minion id."""
    region = telling.api.live("regions", name=REGION) or {}
    made = telling.api.post("/v1/join-tokens", {"region_id": region["id"]})
    url = telling.stage.settings.api_url
    fetched = f"curl -fsS {url}/join.sh"
    words = "--api", url, "--token", made["secret"], "--key", made["ssh_public_key"]
    telling.tell(f"{machine.name}$ {fetched} | sh -s -- --api {url} --token … --key …")
    line = f"{fetched} | sh -s -- {shlex.join(map(str, words))}"
    telling.tell(machine.run("sh", "-c", line).strip())
    minion = "--region", REGION, "--minion-id", machine.minion_id
    telling.baseload("node", "add", machine.name, *minion, *options)


def _run(telling: Telling, name: str, *datasets: str) -> Resource:
    """Submit the job that reads datasets and NFS folder and stores on SMB, and wait for its end."""
    file = telling.stage.settings.home / f"{name}.yaml"
    ids = [telling.id_of("datasets", each) for each in (WEB_NAME, *datasets)]
    words = {"sets": telling.id_of("datastores", "sets"), "datasets": ", ".join(ids)}
    results = telling.id_of("datastores", "results")
    file.write_text(JOB.format(name=name, results=results, **words))
    shown = shortened(file)
    telling.tell(f"$ cat {shown}\n{file.read_text().rstrip()}")
    telling.baseload("submit", shown)
    job = telling.reached("jobs", name, "finished")
    telling.baseload("events", name)
    return job


def _staged(telling: Telling, job: Resource) -> Resource:
    """What the job's event says of its data on their way."""
    events = telling.api.get(f"/v1/jobs/{job['id']}/events?limit=100")["items"]
    found = [each for each in events if each["type"] == "job.data-staged"]
    telling.expect("an event says what was fetched", len(found) == 1)
    telling.tell(str(found[0]["message"]))
    return dict(found[0]["details"])


def _check_output(
    telling: Telling, name: str, others: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Read the files of the share, on its server. others: files of other datasets of the job."""
    folder: Path = telling.stage.smb.shared / "runs" / name
    for path in sorted(folder.iterdir()):
        telling.tell(f"{path}: {path.stat().st_size} bytes: {path.read_text().strip()!r}")
    lines = (folder / "sha256.txt").read_text().splitlines()
    seen = {file: digest for digest, file in (line.split() for line in lines)}
    contents = {f"{WEB_NAME}{WEB_PATH}": telling.numbers, **others}
    asked = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    telling.expect(f"it has read {', '.join(asked)} as their servers have them", seen == asked)
    words = (folder / "sorted.txt").read_text().split()
    telling.expect("it has sorted the words of the NFS share", words == sorted(WORDS))


def _is_gone(telling: Telling, noun: str, name: str) -> bool:
    return telling.api.live(noun, name=name) is None


def _times_sent(telling: Telling) -> int:
    """How often the web server was asked for the file and sent all of it."""
    return telling.stage.web.sent.count(WEB_PATH)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
