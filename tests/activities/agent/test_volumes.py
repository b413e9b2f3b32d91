"""Volumes that a run writes to: its own copies on the node, and what is packed of them."""

import gzip
import io
import json
import os
import subprocess
import tarfile
from typing import Any

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import IMAGE
from tests.activities.agent.test_contents import PART, Node
from tests.activities.contents import Cut, cut, link, tar_of

RUN, OTHER = "job-va-0-1", "job-vb-0-1"
WRITE = (
    'cd "$BASELOAD_VOLUMES/notes" && cat old.txt && echo new > new.txt && rm old.txt'
    ' && mkdir -p deep && echo "$BASELOAD_VOLUMES" > deep/where'
)
MOST = {"most_bytes": 10**6}

pytestmark = pytest.mark.usefixtures("staged_before")


@pytest.fixture
def node(agent: LocalAgent) -> Node:
    return Node(agent)


@pytest.fixture
def content() -> Cut:
    return cut(tar_of(("old.txt", b"old\n"), ("kept.txt", b"kept"), link("to", "kept.txt")), PART)


def of(content: Cut, *, writes: bool = True, name: str = "notes") -> list[dict[str, Any]]:
    return [{"role": "volume", "name": name, "sha256": content.sha256, "writes": writes}]


def bring(node: Node, content: Cut, run: str = RUN) -> None:
    """Bring a content, as the staging of a run does."""
    if not node.find(content, run)["present"]:
        assert node.send(content) is None


def packed(agent: LocalAgent, run: str = RUN, **changes: Any) -> dict[str, bytes]:
    """The files of a volume, as the platform gets them."""
    request = {"root": str(agent.root), "run_id": run, "name": "notes", **MOST, **changes}
    done = subprocess.run(
        agent.command("pack_volume"),
        input=json.dumps(request).encode() + b"\n",
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Refused(json.loads(done.stderr.splitlines()[-1])["error"])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(done.stdout))) as tar:
        found = {each.name: tar.extractfile(each) for each in tar if each.isreg()}
        return {name: file.read() for name, file in found.items() if file is not None}


def test_what_a_run_writes_into_its_volume_is_packed_and_its_content_is_not_there_twice(
    node: Node, content: Cut
) -> None:
    agent = node.agent
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    opened = agent.call("open_volumes", run_id=RUN)["volumes"]
    assert [each["name"] for each in opened] == ["notes"]
    assert not node.folder(content).exists(), "the content takes the disk twice"
    assert agent.call("open_volumes", run_id=RUN)["volumes"] == opened
    assert agent.call("fingerprint_volume", run_id=RUN, name="notes")["mark"] == opened[0]["mark"]
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0, agent.path(RUN, "log").read_text()
    assert agent.path(RUN, "log").read_text() == "old\n"
    where = f"{agent.path(RUN, 'volumes')}\n".encode()
    assert packed(agent) == {"new.txt": b"new\n", "kept.txt": b"kept", "deep/where": where}
    assert agent.call("fingerprint_volume", run_id=RUN, name="notes")["mark"] != opened[0]["mark"]
    with pytest.raises(Refused, match="too-large"):
        packed(agent, most_bytes=5)


def test_a_staging_that_is_repeated_does_not_bring_a_volume_again(node: Node, content: Cut) -> None:
    agent = node.agent
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    opened = agent.call("open_volumes", run_id=RUN)["volumes"]
    assert node.find(content, RUN)["present"], "it is sent, and takes the disk, once more"
    assert agent.call("open_volumes", run_id=RUN)["volumes"] == opened
    assert not node.find(content, OTHER)["present"], "another run has no folder of its own"
    agent.path(RUN, "volumes.json").write_text(json.dumps({"notes": "another boot"}))
    assert not node.find(content, RUN)["present"], "a power cut may have damaged it"
    assert node.send(content) is None
    both = [*of(content), *of(content, writes=False, name="day-1")]
    agent.stage(OTHER, "true", contents=both)
    agent.call("open_volumes", run_id=OTHER)
    assert node.find(content, OTHER)["present"]
    assert node.folder(content).exists(), "it reads the same content as well"


def test_a_content_that_another_run_reads_stays_as_it_was(node: Node, content: Cut) -> None:
    agent = node.agent
    bring(node, content, OTHER)
    agent.stage(OTHER, 'cat "$BASELOAD_VOLUMES/notes/old.txt"', contents=of(content, writes=False))
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    agent.call("open_volumes", run_id=RUN)
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    agent.call("start", run_id=OTHER)
    assert agent.exit_of(OTHER)["exit_code"] == 0
    assert agent.path(OTHER, "log").read_text() == "old\n"
    assert sorted(each.name for each in node.folder(content).iterdir()) == [
        "kept.txt", "old.txt", "to",
    ]  # fmt: skip


def test_a_volume_that_a_power_cut_may_have_damaged_is_opened_again_from_its_content(
    node: Node, content: Cut
) -> None:
    agent = node.agent
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    with pytest.raises(Refused, match="no-content"):
        agent.call("start", run_id=RUN)
    agent.call("open_volumes", run_id=RUN)
    agent.path(RUN, "volumes.json").write_text(json.dumps({"notes": "another boot"}))
    (agent.path(RUN, "volume-notes") / "old.txt").write_text("damaged")
    with pytest.raises(Refused, match="no-content"):
        agent.call("start", run_id=RUN)
    with pytest.raises(Refused, match="no-content"):
        agent.call("open_volumes", run_id=RUN)
    bring(node, content)
    agent.call("open_volumes", run_id=RUN)
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_text() == "old\n"


def test_what_a_command_has_written_stays_whatever_has_become_of_the_machine_since(
    node: Node, content: Cut
) -> None:
    agent = node.agent
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    agent.call("open_volumes", run_id=RUN)
    agent.call("start", run_id=RUN)
    agent.exit_of(RUN)
    agent.path(RUN, "volumes.json").write_text(json.dumps({"notes": "another boot"}))
    agent.call("open_volumes", run_id=RUN)
    assert packed(agent)["new.txt"] == b"new\n"


def test_what_a_command_has_written_before_its_staging_is_repeated_counts_as_changed(
    node: Node, content: Cut
) -> None:
    """A job that has lost its workflow stages again; what it stores is compared with the answer."""
    agent = node.agent
    bring(node, content)
    agent.stage(RUN, WRITE, contents=of(content))
    agent.call("open_volumes", run_id=RUN)
    agent.call("start", run_id=RUN)
    agent.exit_of(RUN)
    again = agent.call("open_volumes", run_id=RUN)["volumes"][0]
    found = agent.call("fingerprint_volume", run_id=RUN, name="notes")
    assert again["mark"] != found["mark"], "what was written is never stored"


@pytest.mark.parametrize("name", ["../output", "", "a/b", "-x"])
def test_a_name_that_leads_out_of_the_run_is_refused(agent: LocalAgent, name: str) -> None:
    agent.stage(RUN, "true")
    with pytest.raises(Refused, match="bad-folder"):
        packed(agent, name=name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives runs accounts: run as root")
def test_a_volume_is_of_the_account_of_its_run_alone_and_grows_to_the_disk_of_the_run(
    node: Node, content: Cut
) -> None:
    agent = node.agent
    agent.call("prepare")
    bring(node, content)
    user = {"user": "baseload-job"}
    replace = 'rm -rf "$BASELOAD_VOLUMES/../volume-notes"; ln -s /etc "$BASELOAD_VOLUMES/../x"'
    agent.stage(RUN, f"{WRITE}; ({replace}) 2>&1; true", contents=of(content), **user)
    agent.call("open_volumes", run_id=RUN)
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0, agent.path(RUN, "log").read_text()
    assert agent.path(RUN, "volume-notes").is_dir()
    assert not agent.path(RUN, "x").is_symlink()
    look = f"ls {agent.path(RUN, 'volume-notes')}; ls {agent.path(RUN, 'volumes')}"
    agent.run(OTHER, f"({look}) 2>&1; true", **user)
    assert agent.exit_of(OTHER)["exit_code"] == 0
    said = agent.path(OTHER, "log").read_text().splitlines()
    assert len(said) == 2
    assert all("Permission denied" in line for line in said)


def test_a_container_writes_to_its_volume(podman_agent: LocalAgent, content: Cut) -> None:
    node = Node(podman_agent)
    bring(node, content)
    command = 'cd "$BASELOAD_VOLUMES/notes" && echo "$BASELOAD_VOLUMES" > new.txt && cat old.txt'
    staged = spec(command, runtime="podman", contents=of(content))
    podman_agent.call("stage", run_id=RUN, owned=True, image=IMAGE, spec=staged)
    podman_agent.call("open_volumes", run_id=RUN)
    podman_agent.call("start", run_id=RUN)
    assert podman_agent.exit_of(RUN)["exit_code"] == 0, podman_agent.path(RUN, "log").read_text()
    assert podman_agent.path(RUN, "log").read_text() == "old\n"
    assert packed(podman_agent)["new.txt"] == b"/baseload/volumes\n"
