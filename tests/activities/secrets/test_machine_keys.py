"""The host keys of rented machines, which the platform chooses."""

import subprocess
from pathlib import Path

import pytest

from activities.secrets.machine_keys import host_key_fingerprint, host_private_key
from activities.settings import settings

OLD, NEW = "11" * 32, "22" * 32


@pytest.fixture(autouse=True)
def master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, OLD)


def _set(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", keys)
    settings.cache_clear()


def test_the_fingerprint_is_that_of_the_key_that_the_machine_gets(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(host_private_key("baseload-lea-1"))
    path.chmod(0o600)
    ran = subprocess.run(
        ["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split()[1] == host_key_fingerprint("baseload-lea-1")


def test_each_machine_has_a_key_of_its_own_which_never_changes() -> None:
    assert host_key_fingerprint("baseload-lea-1") == host_key_fingerprint("baseload-lea-1")
    assert host_key_fingerprint("baseload-lea-1") != host_key_fingerprint("baseload-lea-2")


def test_a_machine_is_known_again_under_a_new_master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_key_fingerprint("baseload-lea-1")
    _set(monkeypatch, f"{NEW} {OLD}")
    assert host_key_fingerprint("baseload-lea-1") == before
    _set(monkeypatch, NEW)
    assert host_key_fingerprint("baseload-lea-1") != before
