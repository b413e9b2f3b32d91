"""Lets baseload run jobs on this runtime: an SSH server that a tunnel of yours leads to.

Insert your own ngrok token below, which is never sent to us; it is at
https://dashboard.ngrok.com/get-started/your-authtoken. Close the notebook to end it.
"""

import getpass
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NGROK_AUTHTOKEN = os.environ.get("NGROK_AUTHTOKEN", "INSERT-YOUR-NGROK-TOKEN")
API = "{{api_url}}"
TOKEN = "{{token}}"
"""Of one announcement: it works once."""
PUBLIC_KEY = "{{public_key}}"
"""The one key that is let in."""

PORT = int(os.environ.get("BASELOAD_SSH_PORT", "22"))
AGENT = os.environ.get("NGROK_API", "http://localhost:4040")
FOLDER = Path.home() / ".baseload-colab"
LIBRARIES = "/usr/lib64-nvidia"
PROGRAMS = f"{os.environ['PATH']}:/usr/sbin:/opt/bin"
ENDPOINT_LIMIT_S = 60
INSTALL_NGROK = """
from pyngrok import conf, ngrok
ngrok.install_ngrok()
print()
print(conf.get_default().ngrok_path)
"""


def run(*command: str) -> str:
    """What a command prints. Raises: SystemExit, with what it complains of."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def install_sshd() -> None:
    """Install the SSH server, where it is not there yet."""
    if shutil.which("sshd", path=PROGRAMS) is None:
        run("apt-get", "-qq", "update")
        run("apt-get", "-qq", "install", "-y", "openssh-server")


def ngrok_program() -> str:
    """The agent of ngrok itself, which is installed where it is not there yet."""
    if (found := shutil.which("ngrok")) is not None:
        return found
    run(sys.executable, "-m", "pip", "install", "-q", "pyngrok")
    return run(sys.executable, "-c", INSTALL_NGROK).splitlines()[-1]


def start_sshd() -> subprocess.Popen[bytes]:
    """A server of its own settings: keys alone, on the loopback, to which the tunnel leads."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    key, allowed = FOLDER / "host_key", FOLDER / "authorized_keys"
    if not key.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    allowed.write_text(PUBLIC_KEY + "\n")
    allowed.chmod(0o600)
    (FOLDER / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{PORT}\nHostKey {key}\nAuthorizedKeysFile {allowed}\n"
        "PermitRootLogin prohibit-password\nPubkeyAuthentication yes\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n"
        "StrictModes no\nMaxSessions 100\nPidFile none\nSubsystem sftp internal-sftp\n"
        f'SetEnv "LD_LIBRARY_PATH={LIBRARIES}" "PATH={PROGRAMS}"\n'
    )
    if Path(LIBRARIES).is_dir():
        run("ldconfig", LIBRARIES)
    program = shutil.which("sshd", path=PROGRAMS) or "sshd"
    return subprocess.Popen(
        [program, "-D", "-f", str(FOLDER / "sshd_config")], stdin=subprocess.DEVNULL
    )


def start_tunnel() -> subprocess.Popen[bytes]:
    """The agent of ngrok, with the token in its environment alone.

    Raises: SystemExit, when the user has inserted no token.
    """
    if NGROK_AUTHTOKEN.startswith("INSERT"):
        raise SystemExit("insert your ngrok token in the first lines of the cell")
    with (FOLDER / "ngrok.log").open("wb") as log:
        return subprocess.Popen(
            [ngrok_program(), "tcp", str(PORT), "--log=stdout"],
            env={**os.environ, "NGROK_AUTHTOKEN": NGROK_AUTHTOKEN},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def endpoint(tunnel: subprocess.Popen[bytes]) -> tuple[str, int]:
    """The public host and port that ngrok's agent names.

    Raises: SystemExit, with what the agent says, when it opens no tunnel.
    """
    local = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + ENDPOINT_LIMIT_S
    while time.monotonic() < deadline and tunnel.poll() is None:
        try:
            with local.open(f"{AGENT}/api/tunnels", timeout=5) as answer:
                found = [urlsplit(each["public_url"]) for each in json.load(answer)["tunnels"]]
        except OSError:
            found = []
        for each in found:
            if each.scheme == "tcp" and each.hostname and each.port:
                return each.hostname, each.port
        time.sleep(0.5)
    raise SystemExit("ngrok opened no tunnel: " + (FOLDER / "ngrok.log").read_text()[-2000:])


def gpus() -> tuple[str | None, int]:
    """The name of the GPUs and their number."""
    program = shutil.which("nvidia-smi", path=PROGRAMS)
    if program is None:
        return None, 0
    names = run(program, "--query-gpu=name", "--format=csv,noheader").splitlines()
    return (names[0].strip(), len(names)) if names else (None, 0)


def announce(host: str, port: int) -> Any:
    """Announce the endpoint; the platform then expects this host key, and no other.

    Raises: SystemExit, with the platform's refusal.
    """
    name, count = gpus()
    said = {
        "token": TOKEN,
        "host": host,
        "port": port,
        "user": getpass.getuser(),
        "host_public_key": " ".join((FOLDER / "host_key.pub").read_text().split()[:2]),
        "gpu_name": name,
        "gpu_count": count,
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    request = urllib.request.Request(
        f"{API}/v1/colab/announcements",
        json.dumps(said).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        raise SystemExit(f"{API}: {refused.code}: {refused.read().decode()[:2000]}") from None


def main() -> None:
    """Serve until the notebook is closed. Raises: SystemExit, when the tunnel ends before."""
    started = []
    try:
        install_sshd()
        started.append(start_sshd())
        tunnel = start_tunnel()
        started.append(tunnel)
        host, port = endpoint(tunnel)
        print(f"endpoint  {host}:{port}")
        print("host key ", run("ssh-keygen", "-lf", str(FOLDER / "host_key.pub")))
        print("announced, expires at", announce(host, port)["expires_at"], flush=True)
        while all(each.poll() is None for each in started):
            time.sleep(1)  # This keeps the kernel busy.
        raise SystemExit("the SSH server or the tunnel has ended: run the cell again")
    finally:
        for each in started:
            each.terminate()


if __name__ == "__main__":
    main()
