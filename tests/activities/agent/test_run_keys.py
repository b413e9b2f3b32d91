"""The keys of a run: files for its account alone, in a container too, and gone with the run."""

import os
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent, spec
from tests.activities.agent.podman import IMAGE
from tests.activities.waiting import wait_for

RUN, OTHER = "job-k-0-1", "job-k-1-1"
SECRET = "the-private-key-that-nobody-may-see"
KEYS = {
    "files": {"gcp.json": f'{{"private_key": "{SECRET}"}}', "git_key": "key"},
    "paths": {
        "GOOGLE_APPLICATION_CREDENTIALS": "{keys}/gcp.json",
        "GIT_SSH_COMMAND": "ssh -i {keys}/git_key",
    },
}
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)


def _is_nowhere(agent: LocalAgent, run_id: str) -> bool:
    """Whether nothing but the log of the run has the secret."""
    files = [each for each in agent.path(run_id, ".").rglob("*") if each.is_file()]
    has = [each.name for each in files if SECRET.encode() in each.read_bytes()]
    return has in ([], ["log"])


def test_a_run_finds_its_keys_and_leaves_none(agent: LocalAgent) -> None:
    command = (
        'cat "$GOOGLE_APPLICATION_CREDENTIALS"; echo; echo "$GIT_SSH_COMMAND"; ls $BASELOAD_KEYS'
    )
    agent.run(RUN, command, keys=KEYS)
    assert agent.exit_of(RUN)["exit_code"] == 0
    folder = agent.path(RUN, "keys")
    log = agent.path(RUN, "log").read_text().splitlines()
    assert log[:2] == [KEYS["files"]["gcp.json"], f"ssh -i {folder}/git_key"]
    assert not folder.exists()
    assert _is_nowhere(agent, RUN)


def test_a_variable_of_the_job_itself_stays(agent: LocalAgent) -> None:
    own = {"GOOGLE_APPLICATION_CREDENTIALS": "own"}
    agent.run(RUN, "echo $GOOGLE_APPLICATION_CREDENTIALS", keys=KEYS, environment=own)
    agent.exit_of(RUN)
    assert agent.path(RUN, "log").read_text() == "own\n"


def test_a_run_that_is_ended_before_its_start_leaves_none(agent: LocalAgent) -> None:
    agent.stage(RUN, "true", keys=KEYS)
    agent.call("end", run_id=RUN, grace_s=0)
    assert _is_nowhere(agent, RUN)


@needs_root
def test_only_the_account_of_the_run_reads_its_keys(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    command = "stat -c '%a %U' $GOOGLE_APPLICATION_CREDENTIALS; id -un; exec sleep 6502"
    agent.run(RUN, command, keys=KEYS, user="baseload-job")
    log = agent.path(RUN, "log")
    wait_for(lambda: log.exists() and len(log.read_text().split()) == 3, "the first run")
    mode, owner, account = log.read_text().split()
    assert (mode, owner) == ("600", account)
    path = agent.path(RUN, "keys/gcp.json")
    agent.run(OTHER, f"cat {path} || echo refused", user="baseload-job")
    assert agent.exit_of(OTHER)["exit_code"] == 0
    assert SECRET not in agent.path(OTHER, "log").read_text()
    agent.call("end", run_id=RUN, grace_s=0)
    agent.exit_of(RUN)
    assert not path.exists()
    assert _is_nowhere(agent, RUN)


@pytest.mark.parametrize("user", [None, "baseload-job"])
def test_a_container_finds_the_keys_of_its_run(podman_agent: LocalAgent, user: str | None) -> None:
    if user and os.geteuid() != 0:
        pytest.skip("only root has accounts of jobs: run as root")
    if user:
        podman_agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    command = 'echo $GOOGLE_APPLICATION_CREDENTIALS; cat "$GOOGLE_APPLICATION_CREDENTIALS"'
    more = {} if user is None else {"user": user}
    staged = spec(command, runtime="podman", keys=KEYS, **more)
    podman_agent.call("stage", run_id=RUN, owned=True, image=IMAGE, spec=staged)
    podman_agent.call("start", run_id=RUN)
    assert podman_agent.exit_of(RUN)["exit_code"] == 0
    log = podman_agent.path(RUN, "log").read_text().splitlines()
    assert log == ["/baseload/keys/gcp.json", KEYS["files"]["gcp.json"]]
    assert not Path(podman_agent.path(RUN, "keys")).exists()
    assert _is_nowhere(podman_agent, RUN)
