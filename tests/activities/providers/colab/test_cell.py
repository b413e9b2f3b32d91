"""The cell, run as a notebook runs it: a real SSH server behind the double of ngrok's tunnel."""

import asyncio
import os

import asyncssh
import pytest

from activities.providers.base import Bootstrap
from activities.providers.colab.kind import cell_of
from activities.secrets.region_keys import openssh, region_key_line, region_private_key
from tests.activities.providers.colab.notebook import NGROK_TOKEN, Notebook, announced
from tests.activities.waiting import wait_for

NVIDIA_SMI = ("nvidia-smi", "#!/bin/sh\necho Tesla T4\n")


async def said(host: str, port: int, host_key: str, command: str, **options: object) -> str:
    known = asyncssh.import_known_hosts(f"[{host}]:{port} {host_key}\n")
    keys = [asyncssh.import_private_key(openssh(region_private_key("reg-1")))]
    async with asyncssh.connect(
        host,
        port,
        username="root",
        known_hosts=known,
        config=None,
        **{"client_keys": keys, **options},
    ) as connection:
        return str((await connection.run(command, check=True)).stdout).strip()  # fmt: skip


def test_a_cell_lets_in_the_key_of_its_region_through_the_tunnel_that_it_announces(
    notebook: Notebook,
) -> None:
    (notebook.folder / "bin" / NVIDIA_SMI[0]).write_text(NVIDIA_SMI[1])
    (notebook.folder / "bin" / NVIDIA_SMI[0]).chmod(0o755)
    body = announced(notebook, region_key_line("reg-1"), wait_for)
    host, port, host_key = body["host"], body["port"], body["host_public_key"]
    assert (body["token"], body["user"], body["gpu_name"]) == ("colab_1", "root", "Tesla T4")
    assert (body["gpu_count"], body["cpu_count"]) == (1, os.cpu_count())
    assert f"endpoint  {host}:{port}" in notebook.printed
    assert "SHA256:" in notebook.printed
    shown = asyncio.run(said(host, port, host_key, "echo $LD_LIBRARY_PATH; command -v nvidia-smi"))
    assert shown.split() == ["/usr/lib64-nvidia", f"{notebook.folder}/bin/nvidia-smi"]
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    for refused in ({"client_keys": [stranger]}, {"client_keys": None, "password": "root"}):
        with pytest.raises(asyncssh.PermissionDenied):
            asyncio.run(said(host, port, host_key, "true", **refused))
    given = (notebook.folder / "given_to_ngrok").read_text().split()
    assert given == ["tcp", NGROK_TOKEN]
    assert NGROK_TOKEN not in str(body)


def test_a_cell_without_the_users_token_says_so_and_starts_nothing(notebook: Notebook) -> None:
    values = Bootstrap(api_url="http://127.0.0.1:9", public_key="ssh-ed25519 AAAA", token="colab_1")
    notebook.run(cell_of(values), NGROK_AUTHTOKEN="INSERT-YOUR-NGROK-TOKEN")
    assert notebook.wait() != 0
    assert "insert your ngrok token" in notebook.printed
    assert not (notebook.folder / "given_to_ngrok").exists()
