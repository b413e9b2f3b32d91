"""Federated runs in container images: the same confinement, by podman's own means."""

import os
from pathlib import Path

import pytest

from activities.federation.sealed_models import new_key
from tests.activities.agent.agent_process import LocalAgent, spec
from tests.activities.agent.podman import IMAGE
from tests.activities.agent.test_federated_models import MARKER, archive, holding, sent, terms
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run")
RUN = "job-fedimage-0-1"
USES = (
    'cat "$BASELOAD_MODEL/weights.bin" > copy; cat copy > /tmp/copy; cat copy > /dev/shm/copy; '
    'cat /proc/net/dev > "$BASELOAD_OUTPUT/devices"; cat /proc/self/limits > '
    '"$BASELOAD_OUTPUT/limits"; echo x > /written && echo x > "$BASELOAD_OUTPUT/wrote"; '
    'cat "$BASELOAD_MODEL/config/names.json" > "$BASELOAD_OUTPUT/ready"; sleep 600'
)


def test_a_container_has_its_model_in_memory_and_no_network(podman_agent: LocalAgent) -> None:
    podman_agent.call("prepare", peers=[])
    plain, key = archive(MARKER * 1000), new_key()
    sent(podman_agent, RUN, plain, key)
    staged = spec(USES, runtime="podman", user="baseload-job", federated=terms(plain))
    podman_agent.call("stage", run_id=RUN, owned=True, image=IMAGE, spec=staged)
    podman_agent.call("start", run_id=RUN, model_key=key)
    wait_for(podman_agent.path(RUN, "output/ready").exists, "the container has its model")
    devices = podman_agent.path(RUN, "output/devices").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    assert not podman_agent.path(RUN, "output/wrote").exists()
    cores = podman_agent.path(RUN, "output/limits").read_text().partition("core file size")[2]
    assert cores.split()[:2] == ["1", "1"]
    storage = Path(str((podman_agent.environment or {})["CONTAINERS_STORAGE_CONF"])).parent
    places = [podman_agent.root, storage, Path("/tmp"), Path("/dev/shm")]
    assert holding(MARKER, *places) == [], "while it runs"
    podman_agent.call("end", run_id=RUN, grace_s=0)
    assert holding(MARKER, *places) == [], "after it has ended"
