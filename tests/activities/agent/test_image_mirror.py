"""Public images come through the region's cache: once from their registry, checked by digest."""

import contextlib
import os
import subprocess
import threading
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from activities.agent.cache import server
from activities.agent.cache.client import ask
from activities.agent.cache.location import IDENTITY
from activities.agent.cache.store import CacheStore
from activities.agent.folders import Folders
from activities.agent.host import image_mirror
from activities.secrets.cache_certificates import cache_token, region_authority, server_identity
from activities.settings import settings
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import root_file_system
from tests.activities.agent.registry import Registry, save_image, serving_image

REGION = "reg-images"
MADE = "localhost/baseload-test:mirrored"


@dataclass
class Place:
    """A node with podman, a registry with one image, and the cache of their region."""

    agent: LocalAgent
    registry: Registry
    cache: server.Cache
    store: CacheStore

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.cache.server_port}"

    @property
    def mirror(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "authority": region_authority(REGION),
            "registries": [f"http://{self.registry.address}"],
        }

    def pull(self, run: str, *, owned: bool = False, mirror: dict[str, Any] | None = None) -> None:
        image = f"{self.registry.address}/model:1"
        with contextlib.suppress(subprocess.CalledProcessError):
            self.podman("rmi", "--force", image)
        self.agent.call(
            "stage",
            run_id=run,
            image=image,
            owned=owned,
            image_mirror=mirror or self.mirror,
            spec=spec("true", runtime="podman"),
        )
        assert self.podman("images", "--quiet", image)

    def podman(self, *arguments: str) -> str:
        command = ["podman", *arguments]
        return subprocess.run(
            command, env=self.agent.environment, check=True, capture_output=True
        ).stdout.decode()

    def kept(self) -> list[Path]:
        return sorted(Path(self.store.folder, "images").iterdir())

    def asks(self, path: str) -> Any:
        access = {"cache": self.address, "cache_authority": region_authority(REGION)}
        return ask(access, path, 10)


@pytest.fixture(scope="module")
def layout(podman_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    command = ["podman", "import", "-q", "-", MADE]
    subprocess.run(
        command, input=root_file_system(), env=podman_environment, check=True, capture_output=True
    )
    return save_image(MADE, tmp_path_factory.mktemp("image") / "layout", podman_environment)


@pytest.fixture
def place(
    podman_agent: LocalAgent,
    layout: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "7" * 64)
    settings.cache_clear()
    is_private = getattr(request, "param", False)
    root = tmp_path / "storage"
    (root / "cache").mkdir(parents=True)
    (root / IDENTITY).write_text(server_identity(REGION, "nod-s", "127.0.0.1"))
    store = CacheStore(str(root / "cache"), 1 << 30)
    store.make()
    (tmp_path / "registries.conf").write_text("")
    podman_agent.environment = {
        **(podman_agent.environment or {}),
        "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf"),
        "HOME": str(tmp_path),
    }
    with serving_image(layout, is_private=is_private) as registry:
        name = image_mirror.path_of(registry.address)
        wanted = {
            "index_url": "http://127.0.0.1:1/simple",
            "registries": {name: f"http://{registry.address}"},
            "token_sha256": cache_token(REGION),
        }
        tls = server._tls(Folders(str(root)))
        cache = server.Cache(("127.0.0.1", 0), store, wanted, tls)
        thread = threading.Thread(target=cache.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        found = Place(podman_agent, registry, cache, store)
        yield found
        cache.shutdown()
        cache.server_close()
        thread.join()
        podman_agent.call("release")
        with contextlib.suppress(subprocess.CalledProcessError):
            found.podman("rmi", "--force", f"{registry.address}/model:1")
    settings.cache_clear()


def test_a_second_node_has_the_image_from_the_cache_even_without_its_registry(
    place: Place,
) -> None:
    place.pull("job-im1-0-1")
    assert len(place.kept()) >= 2  # Manifest and configuration; a layer that podman has not yet.
    first = len(place.registry.asked)
    assert first > 0
    place.pull("job-im2-0-1")
    assert len(place.registry.asked) == first
    place.registry.is_away = True
    place.pull("job-im3-0-1")
    assert len(place.registry.asked) == first
    certificates = Path(image_mirror._certificates(dict(os.environ))) / place.address
    assert (certificates / "ca.crt").exists() is (os.geteuid() == 0)
    place.agent.call("release")
    assert not certificates.exists()


def test_an_image_comes_from_its_registry_while_the_cache_is_away(place: Place) -> None:
    away = {**place.mirror, "address": "127.0.0.1:1"}
    place.agent.environment = {**(place.agent.environment or {})}
    conf = Path(place.agent.environment["CONTAINERS_REGISTRIES_CONF"])
    conf.write_text(place.registry.settings)
    place.pull("job-im4-0-1", mirror=away)
    assert place.kept() == []


def test_a_blob_that_is_spoilt_on_its_way_is_neither_kept_nor_given(place: Place) -> None:
    place.registry.spoils = True
    with pytest.raises(Refused):
        place.pull("job-im5-0-1")
    name = image_mirror.path_of(place.registry.address)
    assert all("sha256" not in path.name for path in place.kept())
    digest = "0" * 64
    with pytest.raises(urllib.error.HTTPError, match="502"):
        place.asks(f"/v2/{name}/model/blobs/sha256:{digest}")
    assert [path for path in place.kept() if path.name == digest] == []


@pytest.mark.parametrize("place", [True], indirect=True)
def test_an_image_with_a_password_goes_past_the_cache(place: Place, tmp_path: Path) -> None:
    credentials = tmp_path / "auth.json"
    credentials.write_text(place.registry.credentials)
    place.agent.environment = {
        **(place.agent.environment or {}),
        "REGISTRY_AUTH_FILE": str(credentials),
    }
    place.pull("job-im6-0-1", owned=True)
    assert place.kept() == []
    name = image_mirror.path_of(place.registry.address)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        place.asks(f"/v2/{name}/model/manifests/1")


def test_the_cache_asks_no_registry_but_those_that_it_mirrors(place: Place) -> None:
    before = len(place.registry.asked)
    for path in (
        f"/v2/{place.registry.address}/model/manifests/1",
        "/v2/169.254.169.254/model/manifests/1",
        f"/v2/{image_mirror.path_of(place.registry.address)}/../../x/manifests/1",
        f"/v2/{image_mirror.path_of(place.registry.address)}/model/blobs/sha256:..%2Fx",
    ):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            place.asks(path)
    assert len(place.registry.asked) == before
