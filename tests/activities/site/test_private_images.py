"""A private image, from the sealed order to a container on a node, by the project's login."""

from pathlib import Path

import pytest

from tests.activities.agent.conftest import podman_environment
from tests.activities.agent.password_registry import ADA, PasswordRegistry
from tests.activities.agent.test_private_images import registry
from tests.activities.site.test_runs import RUN, collected, exited, order, refusal, started
from tests.activities.sites import Site, isolated
from workflows.contracts import errors

__all__ = ["podman_environment", "registry"]
PASSWORD = ADA.partition(":")[2]


@pytest.fixture
def node(
    site: Site, podman_environment: dict[str, str], registry: PasswordRegistry, tmp_path: Path
) -> Site:
    """A node with podman, which knows the registry."""
    (tmp_path / "registries.conf").write_text(registry.settings)
    said = {
        "CONTAINERS_CONF": podman_environment["CONTAINERS_CONF"],
        "CONTAINERS_STORAGE_CONF": podman_environment["CONTAINERS_STORAGE_CONF"],
        "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf"),
    }
    site.sshd.stop()
    site.sshd.variables = " ".join(f"{name}={value}" for name, value in said.items())
    site.sshd.start()
    return site


async def test_an_image_is_pulled_by_the_login_that_was_sealed_and_by_no_other_way(
    node: Site, registry: PasswordRegistry
) -> None:
    image = f"{registry.address}/vision/train:1"
    isolation = isolated(node.node).model_copy(
        update={"runtimes": ("process", "podman"), "owned": True}
    )
    more = {"image": image, "isolation": isolation}
    without = await refusal(node, order(node, "true", **more))
    assert (without.type, without.details) == (errors.WORK_REFUSED, ({"code": "image"},))
    wrong = await refusal(node, order(node, "true", registry_login="ada:a-wrong-one", **more))
    assert (wrong.type, "a-wrong-one" in str(wrong)) == (errors.WORK_REFUSED, False)
    await started(node, 'echo "$WHOSE"', registry_login=ADA, **more)
    assert (await exited(node)).exit is not None
    assert await collected(node) == b"ada\n"
    files = [path for path in node.agent.root.rglob("*") if path.is_file()]
    assert node.agent.path(RUN, "spec.json") in files
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
