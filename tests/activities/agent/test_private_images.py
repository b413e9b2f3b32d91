"""Images of a registry with a password: each project's own login opens it, and no other's pull."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.password_registry import (
    ADA,
    BOB,
    PasswordRegistry,
    password_registry,
)
from tests.activities.agent.podman import root_file_system
from tests.activities.agent.registry import reach, save_image, serving_image

PODMAN = """#!/bin/sh
printf '%s\\n' "$*" >> {folder}/commands
before=
for each in "$@"; do
    if [ "$before" = --authfile ]; then stat -c '%a %u' "$each" >> {folder}/modes; fi
    before=$each
done
exec {podman} "$@"
"""
"""Notes what it is asked, then is podman."""


def podman(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        ["podman", *arguments], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def registry(
    podman_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PasswordRegistry]:
    """The registry, with an image that is not on the node."""
    with password_registry(tmp_path_factory.mktemp("registry") / "served") as found:
        name = f"{found.address}/vision/train:1"
        subprocess.run(
            ["podman", "import", "-q", "--change", "ENV WHOSE=ada", "-", name],
            input=root_file_system(),
            env=podman_environment,
            check=True,
            capture_output=True,
        )
        podman(podman_environment, "push", "--tls-verify=false", "--creds", ADA, name)
        podman(podman_environment, "rmi", name)
        yield found


@pytest.fixture
def node(podman_agent: LocalAgent, registry: PasswordRegistry, tmp_path: Path) -> LocalAgent:
    """A node on which each podman command is noted."""
    reach(podman_agent, registry, tmp_path)
    assert isinstance(podman_agent.environment, dict)
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(PODMAN.format(folder=tmp_path, podman=shutil.which("podman")))
    program.chmod(0o755)
    podman_agent.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    return podman_agent


def stage(node: LocalAgent, run_id: str, image: str, login: str | None, *, owned: bool) -> None:
    node.call(
        "stage",
        run_id=run_id,
        image=image,
        owned=owned,
        registry_login=login,
        spec=spec("true", runtime="podman"),
    )


@pytest.mark.parametrize("owned", [True, False])
def test_an_image_is_pulled_by_the_login_of_its_project_which_nobody_sees(
    node: LocalAgent, registry: PasswordRegistry, tmp_path: Path, owned: bool
) -> None:
    image = f"{registry.address}/vision/train:1"
    stage(node, "job-ada-0-1", image, ADA, owned=owned)
    node.call("start", run_id="job-ada-0-1")
    assert node.exit_of("job-ada-0-1")["exit_code"] == 0
    assert (tmp_path / "modes").read_text().split() == ["600", str(os.geteuid())]
    password = ADA.partition(":")[2]
    assert password not in (tmp_path / "commands").read_text()
    assert "--authfile" in (tmp_path / "commands").read_text()
    kept = [path for path in node.root.rglob("*") if path.is_file() and path.name != "commands"]
    assert not [path for path in kept if password.encode() in path.read_bytes()]
    assert not list((node.root / "runs").rglob("auth.json"))
    podman(node.environment, "rmi", "--force", image)  # type: ignore[arg-type]


def test_what_one_project_has_pulled_no_other_one_gets_without_a_login_of_its_own(
    node: LocalAgent, registry: PasswordRegistry
) -> None:
    image = f"{registry.address}/vision/train:1"
    stage(node, "job-ada-0-1", image, ADA, owned=True)
    digest = podman(node.environment, "inspect", "--format", "{{.Digest}}", image)  # type: ignore[arg-type]
    image_id = podman(node.environment, "inspect", "--format", "{{.Id}}", image)  # type: ignore[arg-type]
    by_digest = f"{registry.address}/vision/train@{digest}"
    wrong = "bob:another-password"
    for owned, name, login in (
        (True, image, None),
        (True, by_digest, None),
        (True, f"{image}@{digest}", None),
        (True, image, wrong),
        (False, image, None),
        (False, by_digest, wrong),
    ):
        with pytest.raises(Refused) as caught:
            stage(node, "job-bob-0-1", name, login, owned=owned)
        assert caught.value.code == "image"
        assert "another-password" not in str(caught.value)
    assert (node.root / "images" / image_id).exists()
    # The power goes between the pull and the note of it.
    (node.root / "images" / image_id).unlink()
    with pytest.raises(Refused):
        stage(node, "job-bob-0-1", by_digest, None, owned=True)
    stage(node, "job-bob-0-1", image, BOB, owned=True)
    node.call("start", run_id="job-bob-0-1")
    assert node.exit_of("job-bob-0-1")["exit_code"] == 0
    podman(node.environment, "rmi", "--force", image)  # type: ignore[arg-type]


def without_layers(image: str, environment: dict[str, str], folder: Path) -> Path:
    """An image of somebody's own that names the layers of another one, and has none of them."""
    layout = save_image(image, folder, environment)
    blobs = layout / "blobs" / "sha256"

    def put(document: dict[str, Any]) -> tuple[str, int]:
        content = json.dumps(document).encode()
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return f"sha256:{digest}", len(content)

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    config["config"] = {"Env": ["WHOSE=bob"]}
    manifest["config"]["digest"], manifest["config"]["size"] = put(config)
    for layer in manifest["layers"]:
        (blobs / layer["digest"][7:]).unlink()
    index["manifests"][0]["digest"], index["manifests"][0]["size"] = put(manifest)
    (layout / "index.json").write_text(json.dumps(index))
    return layout


def test_who_names_the_layers_of_a_private_image_does_not_get_them(
    node: LocalAgent, registry: PasswordRegistry, tmp_path: Path
) -> None:
    image = f"{registry.address}/vision/train:1"
    stage(node, "job-ada-0-1", image, ADA, owned=True)
    environment = node.environment
    assert isinstance(environment, dict)
    stage(node, "job-ada-1-1", image, ADA, owned=True)
    assert "--root" not in (tmp_path / "commands").read_text(), "each job pulls it twice"
    save_image(image, tmp_path / "whole", environment)
    layout = without_layers(image, environment, tmp_path / "layout")
    with serving_image(layout, is_private=False) as other:
        conf = tmp_path / "registries.conf"
        conf.write_text(registry.settings + other.settings)
        for owned in (True, False):
            with pytest.raises(Refused):
                stage(node, "job-bob-0-1", f"{other.address}/bob/train:1", None, owned=owned)
        assert "WHOSE=bob" not in podman(environment, "images", "--all", "--format", "json")
        assert other.address not in podman(environment, "images", "--all", "--format", "json")
        # Whose registry has them has them.
        for path in (tmp_path / "whole" / "blobs" / "sha256").iterdir():
            shutil.copy(path, layout / "blobs" / "sha256")
        proofs = []
        for index in (0, 1):
            stage(node, f"job-bob-{index}-1", f"{other.address}/bob/train:1", None, owned=False)
            proofs.append((tmp_path / "commands").read_text().count("--root"))
        assert proofs[0] == proofs[1], "layers that were sent are asked for again"
        podman(environment, "rmi", "--force", f"{other.address}/bob/train:1")
    assert not list(node.root.glob("image-proof*"))
    podman(environment, "rmi", "--force", image)


def test_a_mark_goes_with_the_image_when_nobody_has_used_it_for_long(
    node: LocalAgent, registry: PasswordRegistry
) -> None:
    image = f"{registry.address}/vision/train:1"
    stage(node, "job-ada-0-1", image, ADA, owned=True)
    (mark,) = (node.root / "images" / "by-login").iterdir()
    node.call("end", run_id="job-ada-0-1", grace_s=0)
    assert node.call("prune", max_age_s=-1)["removed"][-1].startswith("images/")
    assert mark.exists()
    node.call("prune", max_age_s=-1)
    assert not mark.exists()
