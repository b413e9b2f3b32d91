"""Images that runs had pulled go when no run needs them; those of the machine's owner stay."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from activities.agent.errors import RefusedError
from activities.agent.host import steps
from tests.activities.agent.agent_process import LocalAgent, Refused, processes_naming, spec
from tests.activities.agent.podman import IMAGE, root_file_system
from tests.activities.agent.registry import Registry, reach, save_image, serving_image

RUN = "job-i-0-1"
ANOTHER = "localhost/baseload-test:another"


def podman(environment: Mapping[str, str] | None, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(
        ["podman", *arguments], input=given, env=environment, check=True, capture_output=True
    )
    return done.stdout.decode()


@pytest.fixture
def registry(
    podman_agent: LocalAgent, podman_environment: dict[str, str], tmp_path: Path
) -> Iterator[Registry]:
    """The registry of an image that is not on the node."""
    change = ("import", "-q", "--change", "ENV WHOSE=another", "-", ANOTHER)
    podman(podman_environment, *change, given=root_file_system())
    layout = save_image(ANOTHER, tmp_path / "layout", podman_environment)
    podman(podman_environment, "rmi", ANOTHER)
    with serving_image(layout, is_private=False) as found:
        reach(podman_agent, found, tmp_path)
        yield found
    for name in ("own", "other"):
        left = ["podman", "rmi", "--force", f"{found.address}/model:{name}"]
        subprocess.run(left, env=podman_environment, check=False, capture_output=True)


def stage(agent: LocalAgent, registry: Registry, *, owned: bool) -> str:
    """Stage a run in the registry's image, and return the image's id."""
    image = f"{registry.address}/model:{'own' if owned else 'other'}"
    staged = spec("true", runtime="podman")
    agent.call("stage", run_id=RUN, image=image, owned=owned, spec=staged)
    return podman(agent.environment, "image", "inspect", "--format", "{{.Id}}", image).strip()


@pytest.mark.parametrize("owned", [True, False])
def test_an_image_goes_when_no_run_has_used_it_for_long(
    podman_agent: LocalAgent, registry: Registry, owned: bool
) -> None:
    image_id = stage(podman_agent, registry, owned=owned)
    here = podman(podman_agent.environment, "images", "--quiet", "--no-trunc")
    assert image_id in here
    assert podman_agent.call("prune", max_age_s=-1)["removed"] == []
    podman_agent.call("start", run_id=RUN)
    assert podman_agent.exit_of(RUN)["exit_code"] == 0
    assert podman_agent.call("prune", max_age_s=3600)["removed"] == []
    assert podman_agent.call("prune", max_age_s=-1)["removed"][-1] == f"images/{image_id}"
    left = podman(podman_agent.environment, "images", "--quiet", "--no-trunc")
    assert image_id not in left
    assert len(left.split()) == len(here.split()) - 1
    assert podman_agent.call("prune", max_age_s=-1)["removed"] == []


def test_an_image_to_which_the_owner_gave_a_name_and_one_with_a_container_stay(
    podman_agent: LocalAgent, registry: Registry
) -> None:
    image_id = stage(podman_agent, registry, owned=False)
    podman_agent.call("end", run_id=RUN, grace_s=0)
    podman(podman_agent.environment, "create", "--name", "of-the-owner", image_id, "true")
    assert podman_agent.call("prune", max_age_s=-1)["removed"] == []
    podman(podman_agent.environment, "rm", "of-the-owner")
    podman(podman_agent.environment, "tag", image_id, "localhost/mine:1")
    assert podman_agent.call("prune", max_age_s=-1)["removed"] == []
    assert image_id in podman(podman_agent.environment, "images", "--quiet", "--no-trunc")
    podman(podman_agent.environment, "rmi", "localhost/mine:1")


def test_what_the_owner_has_pulled_is_not_removed(podman_agent: LocalAgent) -> None:
    staged = spec("true", runtime="podman")
    podman_agent.call("stage", run_id=RUN, image=IMAGE, owned=True, spec=staged)
    podman_agent.call("end", run_id=RUN, grace_s=0)
    assert podman_agent.call("prune", max_age_s=-1)["removed"] == []
    podman(podman_agent.environment, "image", "exists", IMAGE)


def test_unused_images_make_room_for_a_run(podman_agent: LocalAgent, registry: Registry) -> None:
    image_id = stage(podman_agent, registry, owned=True)
    podman_agent.call("end", run_id=RUN, grace_s=0)
    os.utime(podman_agent.root / "images" / image_id, (0, 0))
    with pytest.raises(Refused) as caught:
        podman_agent.call("stage", run_id="job-i-0-2", disk_size_gb=10_000_000, spec=spec("true"))
    assert caught.value.code == "disk-full"
    assert image_id not in podman(podman_agent.environment, "images", "--quiet", "--no-trunc")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk: run as root")
def test_what_is_installed_ends_before_it_takes_the_room_of_runs(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(small)], check=True)
    try:
        fills = ["sh", "-c", f"head -c 100M /dev/zero > {small}/part; exec sleep 6501"]
        with pytest.raises(RefusedError, match=r"installing: .* MiB free, want 256") as caught:
            steps.run_step("installing", fills, 60, None, (str(small),))
        assert caught.value.code == "disk-full"
        assert processes_naming(small) == []
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


@pytest.mark.parametrize("order", ["run.oci.hooks.stderr", "org.systemd.property.Conflicts"])
def test_an_image_that_gives_orders_to_the_runtime_of_containers_is_refused(
    podman_agent: LocalAgent, podman_environment: dict[str, str], tmp_path: Path, order: str
) -> None:
    image = "localhost/baseload-test:orders"
    written = tmp_path / "by-root"
    asked = ("--annotation", f"{order}={written}", "--annotation", "org.example.harmless=1")
    given = f"FROM {IMAGE}\n".encode()
    podman(podman_environment, "build", "-q", *asked, "-t", image, "-", given=given)
    try:
        with pytest.raises(Refused, match=order) as caught:
            podman_agent.call(
                "stage", run_id=RUN, image=image, owned=True, spec=spec("true", runtime="podman")
            )
        assert caught.value.code == "image"
        assert not written.exists()
    finally:
        podman(podman_environment, "rmi", "--force", image)


def test_an_image_of_several_layers_is_taken_for_any_account(
    podman_agent: LocalAgent, podman_environment: dict[str, str], tmp_path: Path
) -> None:
    name = "localhost/baseload-test:layers"
    given = f"FROM {IMAGE}\nRUN touch /data/first\nRUN touch /data/second\n".encode()
    asked = ("--layers", "--isolation", "chroot", "-q", "-t", name, "-")
    podman(podman_environment, "build", *asked, given=given)
    layout = save_image(name, tmp_path / "several", podman_environment)
    podman(podman_environment, "rmi", "--force", name)
    with serving_image(layout, is_private=False) as registry:
        reach(podman_agent, registry, tmp_path)
        image = f"{registry.address}/model:several"
        asked_for = {"owned": False, "spec": spec("cat /data/second", runtime="podman")}
        podman_agent.call("stage", run_id=RUN, image=image, **asked_for)
    layers = podman(
        podman_agent.environment, "inspect", "--format", "{{len .RootFS.Layers}}", image
    )
    assert int(layers) == 3
    podman_agent.call("end", run_id=RUN, grace_s=0)
    podman(podman_agent.environment, "rmi", "--force", image)


@pytest.mark.parametrize("poison", ["layers", "annotations"])
def test_a_manifest_of_another_account_spoils_no_image_of_the_same_configuration(
    podman_agent: LocalAgent,
    podman_environment: dict[str, str],
    registry: Registry,
    tmp_path: Path,
    poison: str,
) -> None:
    layout = shutil.copytree(registry.layout, tmp_path / "poisoned")
    poisoned(layout, poison)
    registries = tmp_path / "registries.conf"
    with serving_image(layout, is_private=False) as theirs:
        registries.write_text(registry.settings + theirs.settings)
        asked = {
            "owned": False,
            "spec": spec("cat /data/whose 2>/dev/null; true", runtime="podman"),
        }
        with contextlib.suppress(Refused):
            image = f"{theirs.address}/model:other"
            podman_agent.call("stage", run_id=RUN, image=image, **asked)
    image = f"{registry.address}/model:other"
    podman_agent.call("stage", run_id="job-i-0-2", image=image, **asked)
    podman_agent.call("start", run_id="job-i-0-2")
    assert podman_agent.exit_of("job-i-0-2")["exit_code"] == 0
    assert podman_agent.path("job-i-0-2", "log").read_bytes() == b""


def poisoned(layout: Path, poison: str) -> None:
    """Let the manifest of an image have another layer, or an annotation that gives orders; its
    configuration, by which podman names the image, stays."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(_blob(layout, index["manifests"][0]["digest"]).read_bytes())
    if poison == "annotations":
        manifest["annotations"] = {"run.oci.hooks.stderr": "/tmp/orders"}
    else:
        with gzip.open(_blob(layout, manifest["layers"][0]["digest"])) as packed:
            content = packed.read()
        extra = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(content)) as old,
            tarfile.open(fileobj=extra, mode="w") as new,
        ):
            for member in old:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
            info = tarfile.TarInfo("data/whose")
            info.size = 6
            new.addfile(info, io.BytesIO(b"theirs"))
        manifest["layers"][0] |= _added(layout, gzip.compress(extra.getvalue()))
    index["manifests"][0] |= _added(layout, json.dumps(manifest).encode())
    (layout / "index.json").write_text(json.dumps(index))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _added(layout: Path, content: bytes) -> dict[str, object]:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    _blob(layout, digest).write_bytes(content)
    return {"digest": digest, "size": len(content)}
