"""What it shows: what each party is refused, two jobs, a consent withdrawn, and both statements."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.demo_data.stack import Stage
from tests.demo_federated import neighbour, tries
from tests.demo_federated.parties import HOSPITAL, MAKER, Party, Telling
from tests.lab.machine import Machine
from workers.runner.commands import Resource
from workers.runner.local_node import shortened
from workers.runner.narration import Story
from workers.runner.settings import CHECKOUT

REGION, NODE, PROJECT, SHARE, MODEL = "ward", "ward-1", "reads", "records", "cells"
EXAMPLE = CHECKOUT / "examples/federated"
PATIENTS = 24
MARKER = f'"bias": {json.loads((EXAMPLE / "model/cells.json").read_text())["bias"]}'
"""A line of the model, by which it would be found on the node's disk."""
METADATA = "169.254.169.254:80"
FEE_PER_HOUR = 1_850_000
"""Of one worker of inference, in microcredits."""
JOB = """\
name: {name}
type: inference
project_id: {project}
resources: {{gpus: cpu, cpu_count: 1, memory_gib: 1}}
environment: {{variables: {{EVERY_S: "{every_s}"}}}}
data:
  model: {{id: {model}}}
  input: {{type: regional, datastore_id: {share}, path: patients}}
  output: {{type: regional, datastore_id: {share}, path: reads/{name}}}
code: {{path: code}}
workers:
- command: python3 tries.py {places} && exec python3 read.py
"""
ASK = """\
name: ask
type: inference
project_id: {project}
resources: {{gpus: cpu, cpu_count: 1, memory_gib: 1}}
data: {{model: {{id: {model}}}, output: null}}
workers: [{{command: cat "$BASELOAD_MODEL/cells.json"}}]
"""
"""What the maker tries before it may: a job that needs nothing of the hospital but its machine."""
ORDINARY = """\
name: ordinary
type: training
project_id: {project}
resources: {{gpus: cpu, cpu_count: 1, memory_gib: 1}}
workers: [{{command: id}}]
"""
"""A job without confinement, which the permission for federated jobs does not allow."""

_LOOPBACK = f"127.0.0.1:{neighbour.PORT}", f"[::1]:{neighbour.PORT}"
BESIDE = """\
name: beside
type: training
resources: {gpus: cpu, cpu_count: 1, memory_gib: 1}
data: {output: null}
code: {path: beside}
workers: [{command: exec python3 neighbour.py}]
"""
"""An ordinary job of the hospital on the same machine."""


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    for name, step in STEPS:
        with story.step(name):
            step(telling)


def two_accounts(telling: Telling) -> None:
    """The administrator makes them; their plans are what each has paid for so far."""
    telling.seat(HOSPITAL, "team")
    telling.seat(MAKER, "individual")


def hospital_has_data(telling: Telling) -> None:
    """A machine, a share with patients, and a project that uses own machines alone."""
    hospital, stage = telling.hospital, telling.stage
    hospital.baseload("provider", "enable", "physical", "--wait")
    hospital.baseload("region", "create", REGION, "--relax", "all", "--wait")
    _join(hospital, stage.settings.api_url, stage.lab.add(NODE))
    hospital.reached("nodes", NODE, "maintenance")
    hospital.baseload("node", "activate", NODE)
    hospital.reached("nodes", NODE, "active")
    patients = stage.nfs.shared / "patients"
    patients.mkdir()
    shutil.copy(EXAMPLE / "patients.csv", patients)
    reads = stage.nfs.shared / "reads"
    reads.mkdir()
    reads.chmod(0o1777)  # Two runs may have two accounts, and the share keeps these.
    nfs = "--nfs", stage.nfs.address, "--root", str(stage.nfs.shared)
    hospital.baseload("datastore", "add", SHARE, "--region", REGION, *nfs, "--wait")
    hospital.baseload("project", "create", PROJECT)
    hospital.baseload("project", "set", PROJECT, "--only-owned")


def maker_has_model(telling: Telling) -> None:
    """A small real model: it says of a mass how likely it is malignant."""
    telling.maker.baseload("model", "create", MODEL, str(EXAMPLE / "model"))
    telling.maker.reached("models", MODEL, "ready")


def refused_without_leave(telling: Telling) -> None:
    """Membership, permission and plan are asked for one after the other."""
    hospital, maker = telling.hospital, telling.maker
    ask = _written(telling, "ask", ASK)
    maker.refused("not found", "federated", "create", ask)
    _invite(telling, "job:all")
    maker.refused("gives the permission federated:all", "federated", "create", ask)
    allow = "--allow", "federated:all"
    hospital.baseload("member", "set", maker.address, "--project", PROJECT, *allow)
    maker.refused("asked the plan enterprise", "federated", "create", ask)
    telling.admin.baseload("account", "set", MAKER, "--plan", "enterprise")
    model = maker.id_of("models", MODEL)
    hospital.refused("not found", "model", "export", model, "--to", "-")


def another_job(telling: Telling) -> None:
    """An ordinary job of the hospital has a port, a socket and shared memory, open to all."""
    hospital, folder = telling.hospital, telling.folder(HOSPITAL)
    (folder / "beside").mkdir()
    shutil.copy(Path(neighbour.__file__), folder / "beside")
    (folder / "beside.yaml").write_text(BESIDE)
    hospital.baseload("submit", str(folder / "beside.yaml"))
    machine = telling.stage.lab.machines[NODE]
    line = f"cat {neighbour.SHARED} && grep -c {neighbour.SOCKET} /proc/net/unix"
    hospital.until(
        "root of the node sees its shared memory and its socket",
        lambda: machine.run("sh", "-c", f"{line} 2>/dev/null || true").startswith("of another job"),
    )


def first_job(telling: Telling) -> None:
    """It reads every patient; what it tried from inside is in its output, too."""
    maker = telling.maker
    maker.baseload("federated", "create", _job_file(telling, "reads", every_s=0.3))
    maker.settled("reads")
    maker.baseload("federated", "show", "reads")
    lines = _output(telling, "reads").joinpath("reads.csv").read_text().splitlines()
    for line in lines[:4]:
        telling.story.tell(line)
    maker.expect(f"the share has a read of {PATIENTS} patients", len(lines) == PATIENTS + 1)


def tried_from_inside(telling: Telling) -> None:
    """The project allows nothing, so nothing was reached."""
    found = _tries(telling, "reads")
    reached = [place for place, heard in found["tcp"].items() if heard == "heard"]
    telling.hospital.expect("by TCP it has reached nothing", not reached)
    sent = {place for place, how in found["udp"].items() if how == "sent"}
    telling.hospital.expect("by UDP it has sent nothing beside itself", sent <= set(_LOOPBACK))
    answered = [host for host, heard in found["ping"].items() if heard == "heard"]
    telling.hospital.expect("nobody else has answered its pings", set(answered) <= {"127.0.0.1"})
    telling.hospital.expect("it has seen nothing of another job", not found["others"])
    telling.hospital.expect(
        f"it knows no address of {tries.NAME}", found["name"].startswith("[Errno")
    )
    written = [folder for folder, how in found["files"].items() if how == "written"]
    telling.hospital.expect("it has written no copy beside its output", not written)


def withheld_after_it(telling: Telling) -> None:
    """The log stays on the node, the output is the hospital's, and the maker finds no job."""
    telling.hospital.baseload("cancel", "beside", "--yes")
    for verb in ("logs", "output"):
        telling.maker.refused("no job has the id or the name", verb, "reads")
    ordinary = _written(telling, "ordinary", ORDINARY)
    telling.maker.refused("not found", "submit", ordinary)
    telling.hospital.refused("the log of a federated job is withheld", "logs", "reads")
    telling.hospital.refused("goes to a datastore of its consumer", "output", "reads")


def second_job(telling: Telling) -> None:
    """The hospital allows one place; the second job reaches it and nothing else."""
    hospital, maker = telling.hospital, telling.maker
    egress = "--federated-egress", _places(telling)[0]
    hospital.baseload("project", "set", PROJECT, *egress)
    maker.baseload("federated", "create", _job_file(telling, "watch", every_s=20))
    maker.reached("federated-jobs", "watch", "running")
    hospital.reached("jobs", "watch", "running")
    maker.until(
        "it has read a first patient", lambda: "patient-01" in _so_far(telling, "reads.csv")
    )
    tcp = json.loads(_so_far(telling, "tries.json"))["tcp"]
    telling.story.tell(json.dumps(tcp, indent=1))
    reached = [place for place, heard in tcp.items() if heard == "heard"]
    hospital.expect("it has reached what was allowed alone", reached == _places(telling)[:1])


def kept_while_it_runs(telling: Telling) -> None:
    """Nobody has a shell in it, and the node's disk does not have the model."""
    telling.maker.refused("no job has the id or the name", "exec", "watch", "--", "id")
    telling.hospital.refused("nobody has a session of a federated job", "exec", "watch", "--", "id")
    machine = telling.stage.lab.machines[NODE]
    line = f"grep -rlF -D skip '{MARKER}' /var /tmp /root /home /run"
    telling.story.tell(f"{NODE}# {line}")
    found = machine.run("sh", "-c", f"{line} || true").split()
    telling.hospital.expect("root of the node finds the model on no disk", not found)
    inside = "/proc/$pid/root/var/lib/baseload/runs/*/models/*/cells.json"
    line = f"for pid in $(pgrep -f read.py); do grep -F '{MARKER}' {inside}; done"
    telling.story.tell(f"{NODE}# {line}")
    telling.hospital.expect(
        "root can read it in the memory of the run, as SECURITY.md says",
        MARKER in machine.run("sh", "-c", f"{line} 2>/dev/null || true"),
    )


def consent_withdrawn(telling: Telling) -> None:
    """The hospital removes the member, and the job ends."""
    hospital, maker = telling.hospital, telling.maker
    hospital.baseload("member", "rm", maker.address, "--project", PROJECT)
    ended = maker.settled("watch")
    maker.baseload("federated", "show", "watch")
    maker.expect(
        "the maker is told why",
        "no permission to create federated jobs" in str(ended["status_reason"]),
    )
    events = maker.api.get(f"/v1/federated-jobs/{ended['id']}/events?limit=100")["items"]
    types = {each["type"] for each in events}
    maker.expect("an event says so", "federated.consent-withdrawn" in types)
    lines = (_output(telling, "watch") / "reads.csv").read_text().splitlines()
    hospital.expect("it has not read every patient", 1 < len(lines) <= PATIENTS)
    machine = telling.stage.lab.machines[NODE]
    running = [line for line in machine.command_lines() if "read.py" in line]
    hospital.expect("nothing of it runs on the node", not running)
    again = _written(telling, "ask", ASK)
    maker.refused("not found", "federated", "create", again)


def both_statements(telling: Telling) -> None:
    """The maker pays the fee of both jobs; each party sees who used what of it."""
    hospital, maker = telling.hospital, telling.maker
    found = maker.api.get("/v1/federated-jobs?limit=100")["items"]
    seconds = [int(each["worker_seconds"]) for each in found]
    fees = [int(each["federated_fee_microcredits"]) for each in found]
    exact = [FEE_PER_HOUR * each / 3600 for each in seconds]
    near = all(abs(fee - asked) < 1 for fee, asked in zip(fees, exact, strict=True))
    maker.expect(f"{seconds} s of a worker have cost {fees} microcredits", near and all(fees))
    for party in (hospital, maker):
        party.baseload("statement")
        party.baseload("usage")
    paid = 25_000_000 - int(maker.account["balance_microcredits"])
    maker.expect("the maker has paid these fees and nothing else", paid == sum(fees))
    used = maker.api.get("/v1/usage")["items"]
    consumers = {each["consumer_account_id"] for each in used}
    maker.expect("the maker sees who used its model", consumers == {hospital.account["id"]})
    telling.admin.baseload("admin", "audit")


STEPS: tuple[tuple[str, Callable[[Telling], None]], ...] = (
    ("Two accounts", two_accounts),
    ("The hospital: a machine, patients on a share, a project", hospital_has_data),
    ("The maker: a model", maker_has_model),
    ("Neither gets what the other one has not allowed", refused_without_leave),
    ("Another job on the same machine", another_job),
    ("The first job reads all patients", first_job),
    ("What it tried from inside", tried_from_inside),
    ("Its log and its output", withheld_after_it),
    ("A second job, and one place that it may reach", second_job),
    ("While it runs: no shell, and no model on a disk", kept_while_it_runs),
    ("The hospital withdraws its consent", consent_withdrawn),
    ("Both statements, and who used what", both_statements),
)
"""Each is shown under its heading. One more step is a function, and its line here."""


def _join(hospital: Party, url: str, machine: Machine) -> None:
    """What a person does: run join.sh on the machine, and add it by its minion id."""
    region = hospital.api.live("regions", name=REGION) or {}
    made = hospital.api.post("/v1/join-tokens", {"region_id": region["id"]})
    words = "--api", url, "--token", made["secret"], "--key", made["ssh_public_key"]
    hospital.tell(f"{NODE}# curl -fsS {url}/join.sh | sh -s -- --api {url} --token … --key …")
    line = f"curl -fsS {url}/join.sh | sh -s -- {shlex.join(map(str, words))}"
    hospital.tell(machine.run("sh", "-c", line).strip())
    hospital.baseload("node", "add", NODE, "--region", REGION, "--minion-id", machine.minion_id)


def _invite(telling: Telling, allowed: str) -> None:
    """The hospital invites the maker's user, who accepts with the token that was passed on."""
    hospital, maker = telling.hospital, telling.maker
    noun, _, level = allowed.partition(":")
    hospital.tell(f"$ baseload invite create {maker.address} --project {PROJECT} --allow {allowed}")
    asked = {
        "email": maker.address,
        "project_id": hospital.id_of("projects", PROJECT),
        "permissions": {noun: level},
    }
    made = hospital.api.post("/v1/invitations", asked)
    maker.tell(f"$ baseload invite accept {made['id']}")
    joined = maker.api.post(f"/v1/invitations/{made['id']}/accept", {"token": made["secret"]})
    maker.expect("the maker is a member", joined["project_id"] == asked["project_id"])


def _job_file(telling: Telling, name: str, every_s: float = 0) -> str:
    """The job file of the maker, beside the code of the example and what it tries."""
    folder = telling.folder(MAKER)
    if not (folder / "code").exists():
        shutil.copytree(EXAMPLE / "code", folder / "code")
        shutil.copy(Path(tries.__file__), folder / "code")
    more = {
        "share": telling.hospital.id_of("datastores", SHARE),
        "every_s": every_s,
        "places": " ".join(_places(telling)),
    }
    return _written(telling, name, JOB, **more)


def _written(telling: Telling, name: str, form: str, **more: object) -> str:
    """A job file of the maker, which is shown when it is new; as a command names it."""
    file = telling.folder(MAKER) / f"{name}.yaml"
    project = telling.hospital.id_of("projects", PROJECT)
    model = telling.maker.id_of("models", MODEL)
    if not file.exists():
        file.write_text(form.format(name=name, project=project, model=model, **more))
        telling.maker.tell(f"$ cat {shortened(file)}\n{file.read_text().rstrip()}")
    return shortened(file)


def _places(telling: Telling) -> list[str]:
    """What the job tries to reach: the platform, the share, SSH of its own node, metadata, and
    the port of another job by both loopbacks, of which the job has its own."""
    stage = telling.stage
    node = stage.lab.machines[NODE].address
    places = [stage.settings.api, f"{stage.nfs.address}:2049", f"{node}:22", METADATA]
    return [*places, *_LOOPBACK]


def _output(telling: Telling, job: str) -> Path:
    return telling.stage.nfs.shared / "reads" / job


def _tries(telling: Telling, job: str) -> Resource:
    """What the job has tried, as it has written it to the share."""
    text = (_output(telling, job) / "tries.json").read_text()
    telling.story.tell(text)
    return dict(json.loads(text))


def _so_far(telling: Telling, name: str) -> str:
    """A file of the output of the job that runs, which is on the share when the job has ended."""
    job = telling.hospital.id_of("jobs", "watch")
    line = f"cat /var/lib/baseload/runs/{job}-*/output/{name} 2>/dev/null || true"
    return telling.stage.lab.machines[NODE].run("sh", "-c", line)
