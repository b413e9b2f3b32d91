"""A provider kind is told of in its own folder, its member of the enum and its traits alone."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from temporalio.testing import ActivityEnvironment

import activities.providers
from activities.providers import registry
from activities.providers.base import Kind, RequestRefused
from activities.providers.cloud_parts import check_cloud, ensure_provider_resource
from activities.providers.prices import priced_catalogue
from activities.providers.quotas import live_quotas
from activities.providers.registry import driver_of, kind_of
from api.schemas.providers import ProviderCreation
from tests.architecture.source import LAYERS, ROOT, sources, within
from tests.architecture.test_effects import reached_from
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import CheckProvider, ProviderResource
from workflows.rules.catalogue.providers import TRAITS, Traits, cloud_kinds, traits_of

STATUSES = "workflows/contracts/statuses.py"
TRAITS_FILE = "workflows/rules/catalogue/providers.py"
SDKS = ("google.api_core", "google.auth", "google.cloud", "google.oauth2", "google.pubsub_v1")
"""Of clouds; Temporal's own library imports `google.protobuf` and `grpc`."""
NEW = ProviderKind.COLAB
"""Of the enum; it is made unavailable, so that it can be made anew."""
MODULE = """
from activities.providers.base import Kind
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind

KIND = Kind(
    kind=ProviderKind.COLAB,
    checks=lambda provider_id: (Check(name="look", status="passed", detail=provider_id),),
)
"""


# ── nothing else names a kind ───────────────────────────────────────────────────────────────


def test_only_the_traits_and_a_kinds_own_folder_name_a_kind() -> None:
    members = [f"ProviderKind.{kind.name}" for kind in ProviderKind]
    wrong = [
        f"{source.name}:{line}: {name}"
        for source in sources(*LAYERS)
        if source.name != TRAITS_FILE
        for line, name in source.dotted_names()
        if within(name, *members)
        and not source.name.startswith(f"activities/providers/{name.split('.')[1].lower()}/")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", sorted(TRAITS))
def test_nothing_imports_the_folder_of_a_kind(kind: str) -> None:
    folder = f"activities.providers.{kind}"
    wrong = [
        f"{source.name}:{line}: {name}"
        for source in sources(*LAYERS)
        if not source.name.startswith(f"{folder.replace('.', '/')}/")
        for line, name in source.imports()
        if within(name, folder)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_enum_and_the_traits_are_where_the_checks_look() -> None:
    assert "class ProviderKind" in (ROOT / STATUSES).read_text()
    assert "ProviderKind.GCP" in (ROOT / TRAITS_FILE).read_text()


@pytest.mark.parametrize("kind", sorted(TRAITS))
def test_a_kind_has_its_record(kind: str) -> None:
    found = kind_of(kind)
    assert isinstance(found, Kind)
    assert found.kind == kind
    has_cloud_parts = found.driver, found.region, found.project
    assert traits_of(kind).is_cloud == any(part is not None for part in has_cloud_parts)


@pytest.mark.parametrize("kind", sorted(TRAITS))
def test_a_kind_cannot_reach_a_node(kind: str) -> None:
    forbidden = ("activities.transport", "activities.site")
    reached = reached_from(f"activities.providers.{kind}.kind")
    assert not [name for name in reached if within(name, *forbidden)]


# ── a kind is imported when it is used ──────────────────────────────────────────────────────


def test_who_uses_no_cloud_imports_nothing_of_one() -> None:
    program = (
        "import sys\n"
        "import api.app, activities.registry.main, activities.registry.planning\n"
        "from activities.providers.registry import kind_of\n"
        "kind_of('physical')\n"
        "print(*sorted(sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    clouds = [f"activities.providers.{kind}" for kind in cloud_kinds()]
    found = [name for name in ran.stdout.split() if within(name, *SDKS, *clouds)]
    assert found == []


# ── one kind more ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind has no traits, and nothing of its own folder is imported."""
    monkeypatch.delitem(TRAITS, NEW)
    monkeypatch.delitem(registry.KINDS, NEW, raising=False)
    monkeypatch.delattr(activities.providers, NEW.value, raising=False)
    for name in set(sys.modules):
        if within(name, f"activities.providers.{NEW}"):
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def new_kind(unavailable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A kind out of a folder of its own, with traits."""
    folder = tmp_path / NEW.value
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "kind.py").write_text(MODULE)
    paths = [str(tmp_path), *activities.providers.__path__]
    monkeypatch.setattr(activities.providers, "__path__", paths)
    monkeypatch.setitem(TRAITS, NEW, Traits(is_cloud=True))
    before = set(sys.modules)
    yield NEW.value
    registry.KINDS.pop(NEW, None)
    for name in set(sys.modules) - before:
        if within(name, f"activities.providers.{NEW}"):
            del sys.modules[name]
            monkeypatch.delattr(activities.providers, NEW.value, raising=False)


@pytest.mark.usefixtures("unavailable")
def test_a_kind_without_traits_is_not_available() -> None:
    with pytest.raises(RequestRefused, match="colab: not available here; these are: gcp"):
        kind_of(NEW)
    with pytest.raises(ValidationError, match="not yet available; available: physical, gcp"):
        _created()


def test_a_kind_with_traits_and_a_folder_is_found_everywhere(new_kind: str) -> None:
    assert kind_of(new_kind).kind is NEW
    assert new_kind in cloud_kinds()
    assert _created().kind is NEW
    command = CheckProvider(provider_id="prv-1", provider_kind=NEW)
    checked = asyncio.run(ActivityEnvironment().run(check_cloud, command))
    assert [(check.name, check.detail) for check in checked.checks] == [("look", "prv-1")]


def test_what_a_kind_does_not_have_is_refused_by_name(new_kind: str) -> None:
    with pytest.raises(RequestRefused, match=r"^provider kind colab: asked driver, has none$"):
        driver_of(new_kind, "prv-1")
    with pytest.raises(RequestRefused, match=r"^provider kind colab: asked catalogue, has none$"):
        priced_catalogue(new_kind)
    with pytest.raises(RequestRefused, match=r"^provider kind colab: asked catalogue, has none$"):
        live_quotas(new_kind, "prv-1", "us-central1", 1)
    asked = ProviderResource(provider_id="prv-1", provider_kind=NEW, resource="network")
    with pytest.raises(Exception, match="provider kind colab: asked project, has none"):
        asyncio.run(ActivityEnvironment().run(ensure_provider_resource, asked))


def _created() -> ProviderCreation:
    return ProviderCreation.model_validate({"kind": NEW.value})
