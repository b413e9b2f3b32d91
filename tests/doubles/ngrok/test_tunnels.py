"""The double of ngrok's agent: its API, and what goes through its tunnels."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import asyncssh
import httpx
import pytest

from tests.doubles.ngrok.double import NgrokDouble
from tests.doubles.rented.boot import Address, Machine
from tests.doubles.rented.login import HOST_KEY_BASE64, HOST_KEY_LINE, KEY, PUBLIC, said
from tests.doubles.rented.plain_boot import PlainBoot

ROOT = Path(__file__).parents[3]


@pytest.fixture
def notebook() -> Iterator[Address]:
    """A runtime with an SSH server that nobody outside can reach but through a tunnel."""
    boot = PlainBoot()
    env = {"HOST_KEY": HOST_KEY_BASE64}
    yield boot.start(Machine("notebook", "notebook", "colab", env, let_in=[PUBLIC]))
    boot.close()


@pytest.fixture
def agent(ngrok: NgrokDouble) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=ngrok.url, trust_env=False, timeout=20) as client:
        yield client


def echoed_through(public: SplitResult) -> str:
    """What a command says to whoever comes by the public address."""
    return asyncio.run(said(str(public.hostname), int(public.port or 0), "echo in"))


def test_a_tunnel_leads_to_the_machine_and_shows_its_public_address(
    ngrok: NgrokDouble, agent: httpx.Client, notebook: Address
) -> None:
    ngrok.open(notebook.host, notebook.port)
    [tunnel] = agent.get("/api/tunnels").json()["tunnels"]
    public = urlsplit(tunnel["public_url"])
    assert (public.scheme, tunnel["config"]["addr"]) == ("tcp", f"{notebook.host}:{notebook.port}")
    assert (public.hostname, public.port) != (notebook.host, notebook.port)
    assert echoed_through(public) == "in"
    [tunnel] = agent.get("/api/tunnels").json()["tunnels"]
    assert tunnel["metrics"]["conns"]["count"] == 1


def test_a_tunnel_is_started_and_stopped_by_the_api(
    ngrok: NgrokDouble, agent: httpx.Client, notebook: Address
) -> None:
    body = {"addr": f"{notebook.host}:{notebook.port}", "proto": "tcp", "name": "ssh"}
    assert agent.post("/api/tunnels", json=body).status_code == 201
    assert agent.get("/api/tunnels/ssh").json()["proto"] == "tcp"
    assert agent.delete("/api/tunnels/ssh").status_code == 204
    assert agent.get("/api/tunnels/ssh").status_code == 404
    assert agent.get("/api/tunnels").json()["tunnels"] == []


def test_a_free_account_needs_a_card_and_a_token_must_be_known(
    ngrok: NgrokDouble, agent: httpx.Client
) -> None:
    body = {"addr": "127.0.0.1:22", "proto": "tcp", "name": "ssh"}
    ngrok.has_card = False
    assert "ERR_NGROK_8013" in agent.post("/api/tunnels", json=body).json()["msg"]
    ngrok.token_is_known = False
    assert "ERR_NGROK_107" in agent.post("/api/tunnels", json=body).json()["msg"]
    assert ngrok.tunnels == {}


def test_what_the_agent_does_not_know_is_a_violation(
    ngrok: NgrokDouble, agent: httpx.Client
) -> None:
    assert agent.post("/api/tunnels", json={"proto": "tcp", "port": 22}).status_code == 400
    assert "port" in ngrok.violations.pop()
    assert agent.get("/api/tunnel").status_code == 404
    assert "there is no such call" in ngrok.violations.pop()


def test_a_new_tunnel_is_shown_late(
    ngrok: NgrokDouble, agent: httpx.Client, notebook: Address
) -> None:
    ngrok.late_s = 3
    ngrok.open(notebook.host, notebook.port)
    assert agent.get("/api/tunnels").json()["tunnels"] == []
    ngrok.clock.advance(3)
    assert len(agent.get("/api/tunnels").json()["tunnels"]) == 1


async def test_a_cut_ends_connections_and_a_move_changes_the_address(
    ngrok: NgrokDouble, notebook: Address
) -> None:
    first = ngrok.open(notebook.host, notebook.port)
    known = asyncssh.import_known_hosts(f"[{first[0]}]:{first[1]} {HOST_KEY_LINE}\n")
    async with asyncssh.connect(
        *first, username="root", client_keys=[KEY], known_hosts=known, config=None
    ) as connection:
        ngrok.happens("cut", "command_line")
        await connection.wait_closed()
    assert await said(*first, "echo in") == "in"
    ngrok.happens("moved", "command_line")
    second = ngrok.tunnels["command_line"].forwarder.address
    assert await said(*second, "echo in") == "in"
    with pytest.raises(ConnectionRefusedError):
        await said(*first, "true")
    ngrok.happens("gone", "command_line")
    with pytest.raises(ConnectionRefusedError):
        await said(*second, "true")


def test_the_agent_as_a_process_leads_there_too(notebook: Address) -> None:
    target = f"{notebook.host}:{notebook.port}"
    command = [sys.executable, "-m", "tests.doubles.ngrok", target, "--api-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            shown = json.loads(process.stdout.readline())
            with httpx.Client(base_url=shown["endpoint"], trust_env=False) as client:
                [tunnel] = client.get("/api/tunnels").json()["tunnels"]
            assert tunnel["public_url"] == shown["public_url"]
            public = urlsplit(shown["public_url"])
            assert echoed_through(public) == "in"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
