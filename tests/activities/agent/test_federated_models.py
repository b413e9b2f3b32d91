"""The sealed model of a federated run: plain in memory of the run alone, and never on the disk."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from activities.federation.sealed_models import about, new_key, seal_model
from tests.activities.agent.agent_process import LocalAgent, Refused
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run: run as root"),
]
MARKER = b"marker-of-the-weights-" + os.urandom(8).hex().encode()
HASH = "ab" * 32
USES = (
    'cd "$BASELOAD_MODEL" && cp weights.bin config/names.json "$HOME" && cp weights.bin /tmp/copy '
    '&& cp weights.bin /dev/shm/copy && cp weights.bin "$BASELOAD_STATE" '
    '&& cmp weights.bin /tmp/copy && ! touch "$BASELOAD_MODEL/new" '
    '&& wc -c < weights.bin > "$HOME/ready" && mv "$HOME/ready" "$BASELOAD_OUTPUT/"; '
)


def archive(content: bytes) -> bytes:
    """A model as the platform keeps it: the tar stream of its files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, inside in (("weights.bin", content), ("config/names.json", b'["a"]')):
            entry = tarfile.TarInfo(name)
            entry.size = len(inside)
            tar.addfile(entry, io.BytesIO(inside))
    return packed.getvalue()


def terms(plain: bytes, **more: Any) -> dict[str, Any]:
    """The terms of a federated run with a sealed model."""
    content = {"sha256": HASH, "size_bytes": len(plain), "unpacked_bytes": 0, "file_count": 2}
    model = {"artifact_id": "art-1", "name": "small", "content": content, **more}
    return {"federated_id": "fed-1", "egress": [], "logs": "none", "model": model}


@pytest.fixture
def prepared(agent: LocalAgent) -> LocalAgent:
    agent.call("prepare", peers=[])
    return agent


def sent(agent: LocalAgent, run_id: str, plain: bytes, key: str, bound_to: str = "") -> None:
    """Send the sealed model of a run, as its staging does."""
    sealed = b"".join(seal_model([plain], key, bound_to or about("fed-1", "art-1", HASH)))
    agent.put_input(run_id, sealed, "receive_model", sealed_bytes=len(sealed))


def started(agent: LocalAgent, run_id: str, command: str, plain: bytes, key: str) -> None:
    sent(agent, run_id, plain, key)
    agent.stage(run_id, command, user="baseload-job", federated=terms(plain))
    agent.call("start", run_id=run_id, model_key=key)


def holding(marker: bytes, *folders: Path) -> list[str]:
    """The files below these folders, as root reads them, that hold the marker."""
    done = subprocess.run(
        ["grep", "-rlaF", "--", marker.decode(), *map(str, folders)],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_run_has_its_model_and_the_disk_of_the_node_never_does(prepared: LocalAgent) -> None:
    plain, key = archive(MARKER * 100_000), new_key()
    places = [prepared.root, Path("/tmp"), Path("/dev/shm"), Path("/var/lib"), Path("/run")]
    started(prepared, "job-fedsealed-0-1", USES + "sleep 600", plain, key)
    ready = prepared.path("job-fedsealed-0-1", "output/ready")
    wait_for(ready.exists, "the run has its model")
    assert int(ready.read_text()) == len(MARKER) * 100_000
    # What SECURITY.md says: root of the machine can enter what it has made.
    pid = prepared.document("job-fedsealed-0-1", "process.json")["pid"]
    assert holding(MARKER, Path(f"/proc/{pid}/root/tmp")) != []
    subprocess.run(["sync"], check=True)
    assert holding(MARKER, *places) == [], "while it runs"
    assert holding(key.encode(), prepared.root) == [], "the key is nowhere"
    assert not prepared.path("job-fedsealed-0-1", "model.sealed").exists()
    prepared.call("end", run_id="job-fedsealed-0-1", grace_s=0)
    subprocess.run(["sync"], check=True)
    assert holding(MARKER, *places) == [], "after it has ended"
    assert "job-fedsealed-0-1" not in Path("/proc/mounts").read_text()


def test_a_run_whose_model_does_not_open_says_why_and_starts_nothing(prepared: LocalAgent) -> None:
    plain, key = archive(MARKER), new_key()
    sent(prepared, "job-fedother-0-1", plain, new_key())
    prepared.stage(
        "job-fedother-0-1",
        "touch $BASELOAD_OUTPUT/ran",
        user="baseload-job",
        federated=terms(plain),
    )
    prepared.call("start", run_id="job-fedother-0-1", model_key=key)
    document = prepared.exit_of("job-fedother-0-1")
    assert document["reason"] == "sealed-model", document
    assert "altered" in document["message"]
    assert not prepared.path("job-fedother-0-1", "output/ran").exists()
    assert not prepared.path("job-fedother-0-1", "model.sealed").exists()


def test_a_run_without_its_key_or_its_sealed_model_does_not_start(prepared: LocalAgent) -> None:
    plain = archive(MARKER)
    prepared.stage("job-fedbare-0-1", "true", user="baseload-job", federated=terms(plain))
    with pytest.raises(Refused) as refused:
        prepared.call("start", run_id="job-fedbare-0-1", model_key=new_key())
    assert refused.value.code == "no-content"
    sent(prepared, "job-fedbare-0-1", plain, new_key())
    assert prepared.call("has_model", run_id="job-fedbare-0-1")["present"]
    with pytest.raises(Refused) as refused:
        prepared.call("start", run_id="job-fedbare-0-1")
    assert refused.value.code == "no-model-key"


def test_a_machine_whose_account_is_not_root_refuses_a_federated_run(agent: LocalAgent) -> None:
    agent.become_ordinary()
    with pytest.raises(Refused) as refused:
        agent.stage("job-fedplain-0-1", "true", federated=terms(b""))
    assert refused.value.code == "not-confined"


def test_a_sealed_model_that_does_not_arrive_whole_is_not_kept(prepared: LocalAgent) -> None:
    asked = {"root": str(prepared.root), "run_id": "job-fedcut-0-1", "sealed_bytes": 100}
    done = subprocess.run(
        prepared.command("receive_model"),
        input=json.dumps(asked).encode() + b"\n" + b"x" * 50,
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3
    assert b"sealed-model" in done.stderr
    assert not prepared.call("has_model", run_id="job-fedcut-0-1")["present"]
