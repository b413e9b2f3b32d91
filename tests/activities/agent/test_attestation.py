"""What a node says of itself when its platform asks for an attestation."""

import base64
import hashlib
import os
from pathlib import Path

import pytest

from activities.agent.errors import RefusedError
from activities.agent.federated import attestation
from activities.federation.attestation import ask

KEY = base64.b64encode(b"a host key").decode()
FINGERPRINT = "SHA256:" + base64.b64encode(hashlib.sha256(b"a host key").digest()).decode().rstrip(
    "="
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one host key, and no confidential computing."""
    (tmp_path / "ssh_host_one_key.pub").write_text(f"ssh-ed25519 {KEY} root@here\n")
    monkeypatch.setattr(attestation, "HOST_KEYS", str(tmp_path / "ssh_host_*_key.pub"))
    monkeypatch.setattr(attestation, "REPORTS", str(tmp_path / "reports"))
    return tmp_path


def request(host_key: str = FINGERPRINT) -> dict[str, str]:
    asked = ask("run-1", host_key)
    return {"nonce": asked.nonce, "run_id": asked.run_name, "host_key": host_key}


def test_a_report_is_bound_to_the_question_the_run_and_the_host_key(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "reports").mkdir()
    made = os.mkdir

    def make(path: str, mode: int = 0o777) -> None:
        made(path, mode)
        for name, content in (
            ("provider", b"sev_guest\n"),
            ("outblob", b"report"),
            ("auxblob", b""),
        ):
            Path(path, name).write_bytes(content)

    monkeypatch.setattr(os, "mkdir", make)
    asked = ask("run-1", FINGERPRINT)
    found = attestation.attest(
        {"nonce": asked.nonce, "run_id": asked.run_name, "host_key": FINGERPRINT}
    )
    assert (found["kind"], base64.b64decode(found["report"])) == ("sev_guest", b"report")
    (folder,) = (machine / "reports").iterdir()
    assert (folder / "inblob").read_bytes() == asked.bound


def test_an_ordinary_machine_has_no_attestation(machine: Path) -> None:
    assert not (machine / "reports").exists()
    with pytest.raises(RefusedError) as refused:
        attestation.attest(request())
    assert refused.value.code == "no-attestation"


def test_a_machine_attests_for_no_host_key_of_another(machine: Path) -> None:
    (machine / "reports").mkdir()
    with pytest.raises(RefusedError, match="none of this machine"):
        attestation.attest(request("SHA256:of-another"))
