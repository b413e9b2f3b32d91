"""What is told: data that is where it is needed, once, in a region with central storage."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.demo_data.stack import Stage
from tests.demo_gcp.telling import Terminal
from tests.lab.file_servers import SMB_PASSWORD, SMB_USER
from tests.lab.link import Link
from tests.lab.machine import Machine
from workers.runner.commands import Commands, Resource
from workers.runner.local_node import shortened
from workers.runner.narration import Story

REGION, STORAGE, NODES = "lab", "storage-1", ("node-1", "node-2")
WEB_NAME, WEB_PATH = "numbers", "/numbers.bin"
WEB_BYTES = 150 << 20
"""Of the dataset: three parts."""
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
  datasets: [{dataset}]
  input:  {{type: regional, datastore_id: {sets}, path: words}}      # the NFS share
  output: {{type: regional, datastore_id: {results}, path: runs/{name}}}  # the SMB share
workers:
- command: |
    sha256sum < "$BASELOAD_DATASETS"/numbers/numbers.bin > "$BASELOAD_OUTPUT/sha256.txt"
    sort "$BASELOAD_INPUT/list.txt" > "$BASELOAD_OUTPUT/sorted.txt"
"""
SERVICE = """\
name: served
type: endpoint
resources: {gpus: cpu, cpu_count: 1, memory_gib: 1}
reservation_id: front      # web.local:8888
workers:
- command: exec python3 -m http.server "$BASELOAD_PORT"
"""


class Telling(Terminal):
    """The terminal, and the stage beside it."""

    def __init__(self, stage: Stage, story: Story) -> None:
        super().__init__(stage.settings, story)
        self.stage = stage
        self.story = story
        self.numbers = os.urandom(1 << 20) * (WEB_BYTES >> 20)


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    for name, step in STEPS:
        with story.step(name):
            step(telling)


def central_region(telling: Telling) -> None:
    """The storage node comes first, and is active by itself."""
    telling.baseload("credits", "add", "25")
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


def nfs_dataset(telling: Telling) -> None:
    """A node of the region reads a folder of the NFS share, and the platform stores it."""
    telling.baseload("dataset", "create", "list", "--source", "datastore:sets/words")
    found = telling.reached("datasets", "list", "ready")
    size = (telling.stage.nfs.shared / NFS_FILE).stat().st_size
    telling.expect(
        f"it has the one file of the share, {size} bytes",
        (found["file_count"], found["unpacked_bytes"]) == (1, size),
    )


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


def job_on_other_node(telling: Telling) -> None:
    """Another node has it from the storage node: the platform sends nothing of it again."""
    telling.baseload("node", "maintenance", NODES[0])
    telling.reached("nodes", NODES[0], "maintenance")
    telling.baseload("node", "activate", NODES[1])
    telling.reached("nodes", NODES[1], "active")
    before = telling.stage.sent_bytes()
    job = _run(telling, "third")
    sent = telling.stage.sent_bytes() - before
    staged = _staged(telling, job)
    telling.expect(
        "its node has fetched the dataset from the storage node",
        staged["cached_bytes"] >= WEB_BYTES,
    )
    telling.expect(f"{_mib(sent)} on the platform's cable", sent < OVERHEAD_BYTES)
    _check_output(telling, "third")


def hostname_follows(telling: Telling) -> None:
    """A reserved hostname leads to the node of the job that holds it, also after a move."""
    reserved = "--region", REGION, "--hostname", "web", "--port", "8888"
    telling.baseload("reservation", "create", "front", *reserved)
    with closing(Link(telling.stage.lab.network, "web.local.")) as link:
        _submit(telling, "served", SERVICE)
        _serves_on(telling, link, NODES[1])
        telling.baseload("reservation", "show", "front")
        telling.baseload("stop", "served", "--wait")
        telling.until("nobody answers for web.local any more", lambda: not link.resolve(200))
        for verb, name, status in (
            ("maintenance", NODES[1], "maintenance"),
            ("activate", NODES[0], "active"),
        ):
            telling.baseload("node", verb, name)
            telling.reached("nodes", name, status)
        telling.baseload("start", "served")
        _serves_on(telling, link, NODES[0])
    telling.baseload("cancel", "served", "--wait")
    telling.baseload("reservation", "rm", "front")


def _serves_on(telling: Telling, link: Link, node: str) -> None:
    """The job runs, and this host, a third machine on the link, finds it on that node."""
    telling.reached("jobs", "served", "running")
    address = telling.stage.lab.machines[node].address
    telling.until(f"web.local is {node}, {address}", lambda: link.resolve(200) == [address])
    telling.until("the service answers there", lambda: _answers(address, 8888))


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def remove_everything(telling: Telling) -> None:
    """What was stored goes; what is on the shares stays, because it is theirs."""
    for name in (WEB_NAME, "list"):
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
    ("A dataset from the NFS share", nfs_dataset),
    ("The first job: its data come to the region", first_job),
    ("The second job: its data are there", second_job),
    ("A job on the other node: the storage node has them", job_on_other_node),
    ("A hostname that follows a job between two nodes", hostname_follows),
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


def _run(telling: Telling, name: str) -> Resource:
    """Submit the job that reads dataset and NFS folder and stores on SMB, and wait for its end."""
    _submit(telling, name, _job(telling, name))
    job = telling.reached("jobs", name, "finished")
    telling.baseload("events", name)
    return job


def _submit(telling: Telling, name: str, text: str) -> None:
    """Show a job file, and submit it."""
    file = telling.stage.settings.home / f"{name}.yaml"
    file.write_text(text)
    shown = shortened(file)
    telling.tell(f"$ cat {shown}\n{text.rstrip()}")
    telling.baseload("submit", shown)


def _job(telling: Telling, name: str) -> str:
    def id_of(noun: str, resource: str) -> str:
        return str((telling.api.live(noun, name=resource) or {})["id"])

    return JOB.format(
        name=name,
        dataset=id_of("datasets", WEB_NAME),
        sets=id_of("datastores", "sets"),
        results=id_of("datastores", "results"),
    )


def _staged(telling: Telling, job: Resource) -> Resource:
    """What the job's event says of its data on their way."""
    events = telling.api.get(f"/v1/jobs/{job['id']}/events?limit=100")["items"]
    found = [each for each in events if each["type"] == "job.data-staged"]
    telling.expect("an event says what was fetched", len(found) == 1)
    telling.tell(str(found[0]["message"]))
    return dict(found[0]["details"])


def _check_output(telling: Telling, name: str) -> None:
    """Read the files of the share, on its server."""
    folder: Path = telling.stage.smb.shared / "runs" / name
    for path in sorted(folder.iterdir()):
        telling.tell(f"{path}: {path.stat().st_size} bytes: {path.read_text().strip()!r}")
    seen, *_ = (folder / "sha256.txt").read_text().split()
    asked = hashlib.sha256(telling.numbers).hexdigest()
    telling.expect("it has read the dataset as the web server has it", seen == asked)
    words = (folder / "sorted.txt").read_text().split()
    telling.expect("it has sorted the words of the NFS share", words == sorted(WORDS))


def _is_gone(telling: Telling, noun: str, name: str) -> bool:
    return telling.api.live(noun, name=name) is None


def _times_sent(telling: Telling) -> int:
    """How often the web server was asked for the file and sent all of it."""
    return telling.stage.web.sent.count(WEB_PATH)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
