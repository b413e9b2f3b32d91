"""What the owner of a machine has set up there serves the owner's runs, and no run of others."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import IMAGE
from tests.activities.agent.registry import (
    PASSWORD,
    USER,
    Registry,
    reach,
    save_image,
    serving_image,
)

OWN, OTHER = "job-owners-0-1", "job-strangers-0-1"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)


@pytest.fixture
def cut_off(agent: LocalAgent, wheels: Path) -> None:
    """Where no settings say otherwise, pip has no index: it trusts no authority at all."""
    assert isinstance(agent.environment, dict)
    agent.environment["REQUESTS_CA_BUNDLE"] = "/nonexistent"


@pytest.mark.usefixtures("cut_off")
@pytest.mark.parametrize("by", ["file", "variable"])
def test_the_owners_settings_of_pip_serve_no_build_for_others(
    agent: LocalAgent, wheels: Path, by: str
) -> None:
    assert isinstance(agent.environment, dict)
    settings = wheels.parent / "home/.config/pip/pip.conf"
    if by == "variable":
        settings.unlink()
        agent.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    for owned in ({"owned": False}, {}):
        with pytest.raises(Refused) as caught:
            agent.call(
                "stage", run_id=OTHER, python_packages=["tinything"], spec=spec("true"), **owned
            )
        assert caught.value.code == "packages"
    agent.call("stage", run_id=OWN, owned=True, python_packages=["tinything"], spec=spec("tiny"))
    agent.call("start", run_id=OWN)
    assert agent.exit_of(OWN)["exit_code"] == 0


@pytest.mark.usefixtures("cut_off")
def test_packages_that_were_built_for_the_owner_serve_no_run_of_others(
    agent: LocalAgent, wheels: Path
) -> None:
    asked = {"python_packages": ["tinything"], "spec": spec("tiny")}
    agent.call("stage", run_id=OWN, owned=True, **asked)
    with pytest.raises(Refused) as caught:
        agent.call("stage", run_id=OTHER, owned=False, **asked)
    assert caught.value.code == "packages"


@needs_root
def test_only_the_owners_runs_can_read_the_owners_packages(agent: LocalAgent, wheels: Path) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    imports = spec("python -c 'import tinything; tinything.main()'", user="baseload-job")
    agent.call("stage", run_id=OWN, owned=True, python_packages=["tinything"], spec=imports)
    environment = agent.document(OWN, "spec.json")["packages_path"]
    reads = spec(f"cat {environment}/lib/python*/site-packages/tinything.py", user="baseload-job")
    agent.call("stage", run_id=OTHER, owned=False, spec=reads)
    for run_id in (OWN, OTHER):
        agent.call("start", run_id=run_id)
    assert agent.exit_of(OWN)["exit_code"] == 0
    assert agent.path(OWN, "log").read_text() == "tiny\n"
    assert agent.exit_of(OTHER)["exit_code"] != 0
    assert "def main" not in agent.path(OTHER, "log").read_text()


@pytest.fixture(scope="module")
def layout(podman_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_image(IMAGE, tmp_path_factory.mktemp("image") / "layout", podman_environment)


@pytest.fixture
def private(podman_agent: LocalAgent, layout: Path, tmp_path: Path) -> Iterator[Registry]:
    with serving_image(layout, is_private=True) as registry:
        reach(podman_agent, registry, tmp_path)
        yield registry


def stage_image(agent: LocalAgent, run_id: str, image: str, **more: bool) -> None:
    agent.call("stage", run_id=run_id, image=image, spec=spec("true", runtime="podman"), **more)


HELPER = """#!/bin/sh
printf '{"ServerURL": "", "Username": "%s", "Secret": "%s"}'
"""


@pytest.mark.parametrize("place", ["REGISTRY_AUTH_FILE", ".docker/config.json", "a helper"])
def test_a_private_image_is_pulled_for_its_owner_alone(
    podman_agent: LocalAgent, private: Registry, tmp_path: Path, place: str
) -> None:
    assert podman_agent.environment is not None
    if place == "a helper":
        helper = tmp_path / "bin" / "docker-credential-of-the-owner"
        helper.parent.mkdir()
        helper.write_text(HELPER % (USER, PASSWORD))
        helper.chmod(0o755)
        path = f"{helper.parent}:{podman_agent.environment['PATH']}"
        podman_agent.environment = {**podman_agent.environment, "PATH": path}
        with_helper = f'credential-helpers = ["of-the-owner"]\n{private.settings}'
        (tmp_path / "registries.conf").write_text(with_helper)
    else:
        credentials = tmp_path / ("auth.json" if place.isupper() else place)
        credentials.parent.mkdir(exist_ok=True)
        credentials.write_text(private.credentials)
        if place.isupper():
            podman_agent.environment = {**podman_agent.environment, place: str(credentials)}
    image = f"{private.address}/secret-model:1"
    for more in ({"owned": False}, {}):
        with pytest.raises(Refused, match="without the credentials") as caught:
            stage_image(podman_agent, OTHER, image, **more)
        assert caught.value.code == "image"
    stage_image(podman_agent, OWN, image, owned=True)
    podman_agent.call("start", run_id=OWN)
    assert podman_agent.exit_of(OWN)["exit_code"] == 0


def test_a_private_image_that_is_on_the_node_runs_for_its_owner_alone(
    podman_agent: LocalAgent, private: Registry, podman_environment: dict[str, str]
) -> None:
    image = f"{private.address}/secret-model:2"
    subprocess.run(
        ["podman", "tag", IMAGE, image], env=podman_environment, check=True, capture_output=True
    )
    for asked in (image, IMAGE, f"containers-storage:{IMAGE.rpartition('/')[2]}"):
        with pytest.raises(Refused) as caught:
            stage_image(podman_agent, OTHER, asked, owned=False)
        assert caught.value.code in ("image", "image-away")
    stage_image(podman_agent, OWN, image, owned=True)


def test_others_get_what_the_registry_has_and_not_what_has_the_name_on_the_node(
    podman_agent: LocalAgent,
    layout: Path,
    tmp_path: Path,
    podman_environment: dict[str, str],
) -> None:
    with serving_image(layout, is_private=False) as registry:
        reach(podman_agent, registry, tmp_path)
        image = f"{registry.address}/public:1"
        commit = ["podman", "import", "-q", "--change", "ENV WHOSE=owner", "-", image]
        subprocess.run(
            commit, input=b"\0" * 1024, env=podman_environment, check=True, capture_output=True
        )
        staged = spec('echo "of ${WHOSE:-the registry}"', runtime="podman")
        podman_agent.call("stage", run_id=OTHER, image=image, owned=False, spec=staged)
        podman_agent.call("start", run_id=OTHER)
        assert podman_agent.exit_of(OTHER)["exit_code"] == 0
        assert podman_agent.path(OTHER, "log").read_text() == "of the registry\n"
        manifest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
        found = json.loads((layout / "blobs" / manifest.replace(":", "/")).read_text())
        used = podman_agent.document(OTHER, "spec.json")["image_id"]
        assert found["config"]["digest"] == f"sha256:{used}"


def test_the_owners_proxies_are_in_the_environment_of_the_owners_containers_alone(
    podman_agent: LocalAgent, layout: Path, tmp_path: Path
) -> None:
    with serving_image(layout, is_private=False) as registry:
        reach(podman_agent, registry, tmp_path)
        secret = "http://owner:s3cret@127.0.0.1:9"
        podman_agent.environment = {
            **(podman_agent.environment or {}),
            "https_proxy": secret,
            "NO_PROXY": "127.0.0.1",
        }
        found = {}
        for run_id, owned in ((OWN, True), (OTHER, False)):
            staged = spec('echo "${https_proxy:-none}"', runtime="podman")
            image = f"{registry.address}/public:2"
            podman_agent.call("stage", run_id=run_id, image=image, owned=owned, spec=staged)
            podman_agent.call("start", run_id=run_id)
            assert podman_agent.exit_of(run_id)["exit_code"] == 0
            found[run_id] = podman_agent.path(run_id, "log").read_text()
        assert found == {OWN: f"{secret}\n", OTHER: "none\n"}
