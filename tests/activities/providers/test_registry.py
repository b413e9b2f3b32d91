"""What enabling a provider looks at."""

from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.providers.checks import check_provider
from activities.settings import settings
from tests.activities.sites import Site
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import CheckProvider, ProviderChecked
from workflows.rules.catalogue.providers import TRAITS


def check(kind: ProviderKind = ProviderKind.PHYSICAL) -> ProviderChecked:
    command = CheckProvider(provider_id="prv-1", provider_kind=kind)
    return ActivityEnvironment().run(check_provider, command)


def test_own_machines_need_the_platforms_key_alone(site: Site) -> None:
    found = check()
    assert found.passed
    assert [one.status for one in found.checks] == ["passed", "passed"]
    assert found.checks[0].detail.startswith("SHA256:")
    assert check() == found


def test_a_missing_key_fails_with_its_place_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path))
    settings.cache_clear()
    found = check()
    settings.cache_clear()
    assert not found.passed
    assert str(tmp_path / "keys" / "platform_ed25519") in found.checks[0].detail
    assert "start the API once" in found.checks[0].detail


def test_a_key_that_is_no_key_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SSH_KEY", str(site.sshd.client_key.with_suffix(".pub")))
    settings.cache_clear()
    found = check()
    assert not found.passed
    assert "not an OpenSSH private key" in found.checks[0].detail


def test_a_key_that_others_can_read_is_a_warning(site: Site) -> None:
    site.sshd.client_key.chmod(0o644)
    found = check()
    assert found.passed
    assert found.checks[1].status == "warning"
    assert "chmod 600" in found.checks[1].detail


def test_a_kind_that_is_not_there_yet_says_which_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRAITS, ProviderKind.COLAB)
    found = check(ProviderKind.COLAB)
    assert not found.passed
    available = "gcp, local, physical, runpod, vastai"
    assert found.checks[0].detail == f"colab: not available here; these are: {available}"
