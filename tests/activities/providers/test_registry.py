"""What enabling a provider looks at."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.providers.checks import check_provider
from activities.settings import settings
from tests.activities.sites import Site
from workers.runner.settings import CHECKOUT
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


def test_a_kind_whose_packages_are_missing_fails_with_the_extra_that_brings_them() -> None:
    program = (
        "import sys\n"
        "from activities.providers.base import RequestRefused\n"
        "from activities.providers.registry import checks_of, driver_of, kind_of\n"
        "from workflows.rules.catalogue.providers import TRAITS\n"
        "for name in ('api_core', 'auth', 'cloud', 'oauth2', 'pubsub_v1'):\n"
        "    sys.modules[f'google.{name}'] = None\n"
        "kinds = [kind_of(kind) for kind in TRAITS]\n"
        "(check,) = checks_of('gcp', 'prv-1')\n"
        "print(check.name, check.status, check.detail, check.fix, sep='\\n')\n"
        "kind = kind_of('gcp')\n"
        "print(kind.required('catalogue', kind.catalogue)().machines[0].name)\n"
        "try:\n"
        "    driver_of('gcp', 'prv-1')\n"
        "except RequestRefused as refusal:\n"
        "    print(refusal)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    name, status, detail, fix, machine_type, refusal = ran.stdout.splitlines()
    assert (name, status) == ("package", "failed")
    assert "google.auth, google.cloud.compute_v1, google.pubsub_v1" in detail
    assert fix.startswith("install baseload[gcp] there")
    assert machine_type, "what is read from files needs no package"
    assert refusal.endswith("install baseload[gcp] there")


def test_the_base_needs_no_package_of_a_provider_and_each_rented_kind_has_its_extra() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert [name for name in project["dependencies"] if name.startswith("google")] == []
    extras = project["optional-dependencies"]
    assert any(name.startswith("google-cloud-compute") for name in extras["gcp"])
    assert {"gcp", "runpod", "vastai", "colab"} <= extras.keys()
