"""The start scripts of rented machines, with a real sshd: our host key, our key, and nobody else's.

Each runs in namespaces of its own, over a copy of /etc and empty folders, without a network.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from activities.providers.runpod.pods import pod_body
from activities.providers.vastai.instances import PORT, instance_body
from activities.secrets.machine_keys import host_key_fingerprint
from activities.secrets.region_keys import region_private_key
from activities.settings import settings
from tests.lab.host import obstacle
from workflows.contracts.machines import MachineOffer, MachineSpec

NAME = "baseload-lea-1"
OFFER = MachineOffer(
    zone="any", machine_type="x-1", gpu_type="L4", gpu_count=1, microcredits_per_hour=1,
    provider_offer_id="1",
)  # fmt: skip
SPEC = MachineSpec(lifetime_s=60, tags={"region": "reg-1"}, image="image", disk_size_gb=20)
ROOM = """set -e
ip link set lo up
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=700 tmpfs /root
"""
LOGIN = """
for _ in $(seq 100); do
  ssh-keyscan -t ed25519 -p "$PORT" 127.0.0.1 2> /dev/null > "$FOLDER/known" || true
  [ -s "$FOLDER/known" ] && break
  sleep 0.1
done
ssh-keygen -lf "$FOLDER/known" | cut -d ' ' -f 2
enter() {
  ssh -F /dev/null -p "$PORT" -i "$FOLDER/$1" -o IdentitiesOnly=yes -o BatchMode=yes \\
    -o UserKnownHostsFile="$FOLDER/known" root@127.0.0.1 "$2"
}
enter region 'echo "in, library path $LD_LIBRARY_PATH"'
enter other 'echo in' || echo 'kept out'
printf 'put %s/known /root/copied\\n' "$FOLDER" | sftp -q -b - -F /dev/null -P "$PORT" \\
  -i "$FOLDER/region" -o UserKnownHostsFile="$FOLDER/known" root@127.0.0.1 > /dev/null
cmp "$FOLDER/known" /root/copied && echo 'copied'
"""


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    reason = obstacle()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


def said(folder: Path, start: str, port: int) -> list[str]:
    """What the login says after a start."""
    for name, region in (("region", "reg-1"), ("other", "reg-2")):
        key = region_private_key(region).private_bytes(
            Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
        )
        (folder / name).write_bytes(key)
        (folder / name).chmod(0o600)
    unshared = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*unshared, "bash", "-c", f"{ROOM}{start}{LOGIN}"],
        env={"PATH": os.environ["PATH"], "FOLDER": str(folder), "PORT": str(port)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


EXPECTED = ["in, library path /usr/local/nvidia", "kept out", "copied"]


def test_the_command_of_a_pod_becomes_an_ssh_server_with_our_keys(tmp_path: Path) -> None:
    body = pod_body(NAME, NAME, OFFER, SPEC)
    container = 'env -i PATH="$PATH" LD_LIBRARY_PATH=/usr/local/nvidia ' + " ".join(
        shlex.quote(f"{name}={value}") for name, value in body["env"].items()
    )
    start = f"{container} {body['args']} &\n"
    assert said(tmp_path, start, 22) == [host_key_fingerprint(NAME), *EXPECTED]


def test_the_script_of_an_instance_starts_an_ssh_server_beside_another_one(tmp_path: Path) -> None:
    body = instance_body(NAME, NAME, OFFER, SPEC)
    (tmp_path / "onstart.sh").write_text(body["onstart"])
    start = (
        "mkdir -p /run/sshd; ssh-keygen -A > /dev/null; /usr/sbin/sshd -p 22\n"
        f"LD_LIBRARY_PATH=/usr/local/nvidia bash {tmp_path}/onstart.sh\n"
    )
    assert said(tmp_path, start, PORT) == [host_key_fingerprint(NAME), *EXPECTED]
