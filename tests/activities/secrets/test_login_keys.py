"""The SSH keys of machines of strangers, each of which lets in a key of its own."""

import asyncssh
import pytest

from activities.secrets.login_keys import key_line_of, login_private_key, login_public_key
from activities.secrets.region_keys import region_key_line, region_public_key
from activities.settings import settings
from workflows.contracts.nodes import NodeAddress

OLD, NEW = "11" * 32, "22" * 32
NODE = NodeAddress(
    node_id="nod-1", region_id="reg-1", host="192.0.2.1", port=22, minion_id="SHA256:one"
)


@pytest.fixture(autouse=True)
def master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, OLD)


def _set(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", keys)
    settings.cache_clear()


def test_both_halves_belong_together() -> None:
    private = asyncssh.import_private_key(login_private_key("reg-1", "SHA256:one"))
    shown = private.export_public_key().decode().split()[:2]
    assert login_public_key("reg-1", "SHA256:one").split()[:2] == shown


def test_no_two_machines_and_no_region_have_one_key() -> None:
    keys = {
        region_public_key("reg-1"),
        login_public_key("reg-1", "SHA256:one"),
        login_public_key("reg-1", "SHA256:two"),
        login_public_key("reg-2", "SHA256:one"),
    }
    assert len(keys) == 4


def test_a_machine_is_entered_under_a_new_master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = login_public_key("reg-1", "SHA256:one")
    _set(monkeypatch, f"{NEW} {OLD}")
    assert login_public_key("reg-1", "SHA256:one") == before


def test_a_machine_of_an_earlier_release_keeps_its_regions_key() -> None:
    assert key_line_of(NODE) == region_key_line("reg-1")
    own = key_line_of(NODE.model_copy(update={"has_own_key": True}))
    assert own == f"restrict {login_public_key('reg-1', 'SHA256:one')}"
