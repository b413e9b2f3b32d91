"""Outputs brought from a node, inputs brought to it, as archives."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import AgentRefused
from activities.transport.ssh import NodeConnections
from tests.activities import archives
from tests.activities.agent.agent_process import spec
from tests.activities.archives import file, symlink
from tests.activities.waiting import wait_until

RUN = "job-x-0-1"


class Node:
    """One node with one run on it."""

    def __init__(self, connections: NodeConnections, endpoint: NodeEndpoint) -> None:
        self.connections = connections
        self.endpoint = endpoint
        self.run = Path(endpoint.root) / "runs" / RUN

    async def finish(self, command: str) -> None:
        """Run a command to its end."""
        request = {"run_id": RUN, "spec": spec(command)}
        await self.connections.call(self.endpoint, "stage", request, limit_s=120)
        await self.connections.call(self.endpoint, "start", {"run_id": RUN}, limit_s=120)
        await wait_until((self.run / "exit.json").exists, "the end")

    async def pack(self, verb: str) -> bytes:
        async with await self.connections.stream(self.endpoint, verb, {"run_id": RUN}) as stream:
            return b"".join([chunk async for chunk in stream])

    async def put(self, path: Path, **request: object) -> None:
        asked = {"run_id": RUN, **request}
        await self.connections.feed(self.endpoint, "put_input", asked, path, limit_s=120)


@pytest.fixture
def node(connections: NodeConnections, endpoint: NodeEndpoint) -> Node:
    return Node(connections, endpoint)


def members(packed: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        return {member.name: member for member in tar}


def content(packed: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        found = tar.extractfile(name)
        assert found is not None
        return found.read()


async def test_an_output_is_packed_with_its_folders_and_bytes(node: Node) -> None:
    await node.finish(
        "cd $BASELOAD_OUTPUT; mkdir -p a/empty; head -c 3000000 /dev/urandom > a/big; touch b"
    )
    packed = await node.pack("pack_output")
    assert set(members(packed)) == {"a", "a/empty", "a/big", "b"}
    is_same = content(packed, "a/big") == (node.run / "output/a/big").read_bytes()
    assert is_same, "differs"


async def test_an_output_holds_no_way_out(node: Node) -> None:
    await node.finish(
        "cd $BASELOAD_OUTPUT; touch in; ln -s in kept; ln -s /etc/passwd absolute;"
        " ln -s ../../.. out; mkfifo pipe; mkdir sub; ln -s ../in sub/kept"
    )
    found = members(await node.pack("pack_output"))
    assert set(found) == {"in", "kept", "sub", "sub/kept"}
    assert found["kept"].issym()


async def test_the_same_output_is_the_same_bytes(node: Node) -> None:
    await node.finish("cd $BASELOAD_OUTPUT; echo one > one; mkdir two; echo three > two/three")
    assert await node.pack("pack_output") == await node.pack("pack_output")


async def test_a_run_that_is_not_there_has_no_output(node: Node) -> None:
    with pytest.raises(AgentRefused) as caught:
        await node.pack("pack_output")
    assert json.loads(caught.value.said)["error"]["code"] == "no-folder"


async def test_an_input_is_there_before_the_command_and_replaced_by_the_next(
    node: Node, tmp_path: Path
) -> None:
    first, _ = archives.archive(tmp_path, file("old", b"old"))
    second, _ = archives.archive(tmp_path, file("given/x", os.urandom(1_000_000)), file("y", b"y"))
    await node.put(first)
    await node.put(second)
    await node.finish("ls $BASELOAD_INPUT; wc -c < $BASELOAD_INPUT/given/x")
    assert (node.run / "log").read_text().split() == ["given", "y", "1000000"]


async def test_a_hostile_input_is_refused_with_nothing_written(node: Node, tmp_path: Path) -> None:
    hostile, _ = archives.archive(tmp_path, file("x"), symlink("y", "../../.."))
    with pytest.raises(AgentRefused) as caught:
        await node.put(hostile)
    assert json.loads(caught.value.said)["error"]["code"] == "unsafe-archive"
    assert names_in(node.run) == []


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
