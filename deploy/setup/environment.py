"""Installs the locked dependencies into `.venv` with uv, if the lock file has changed."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from console import CHECKOUT, locked, main_of, need_disk, run, say

VENV = CHECKOUT / ".venv"
STAMP = VENV / "baseload-lock"
TOOLS = CHECKOUT / ".baseload" / "tools"
UV = CHECKOUT / "deploy" / "setup" / "uv.txt"
"""The version of uv, and the hashes of its packages."""
OURS = ("workflows", "activities", "api", "workers", "client", "tests")
NETWORK = "Is the network up? A mirror can be named with UV_DEFAULT_INDEX and PIP_INDEX_URL"


def set_up_environment() -> None:
    """Bring `.venv` to the state of the lock file, and our own bytecode to that of the sources."""
    _install()
    compiled = [VENV / "bin" / "python", "-m", "compileall", "-q", *OURS]
    run(compiled, "compiling", advice="A file named above cannot be read or written")


def _install() -> None:
    if _is_current():
        return
    with locked(CHECKOUT / ".baseload", "environment"):
        if _is_current():
            return
        need_disk(CHECKOUT, 1, "the Python environment")
        say("installing the locked dependencies into .venv")
        uv = own_uv()
        # First what uv.lock has the hashes of, built by others; then our client, with what is
        # there by then: without a network, so that nothing else can come.
        _sync(uv, "installing dependencies", "--no-build", "--no-install-workspace")
        _sync(uv, "installing the client", "--offline")
        STAMP.write_text(_lock_digest())


def _sync(uv: str, purpose: str, *options: str) -> None:
    run(
        [uv, "sync", "--frozen", "--all-extras", "--python", sys.executable, *options],
        purpose,
        advice=NETWORK,
        environment={
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PROJECT_ENVIRONMENT": str(VENV),
            # Without this, half of a process's start would be compiling, and at every start
            # where PYTHONDONTWRITEBYTECODE is set.
            "UV_COMPILE_BYTECODE": "1",
        },
    )


def _is_current() -> bool:
    python = VENV / "bin" / "python"
    return python.exists() and STAMP.exists() and STAMP.read_text() == _lock_digest()


def _lock_digest() -> str:
    files = ("uv.lock", "pyproject.toml", "client/pyproject.toml")
    content = b"\0".join((CHECKOUT / name).read_bytes() for name in files)
    return hashlib.sha256(content).hexdigest()


def own_uv() -> str:
    """The uv on PATH if it works, else our own uv, which a later sync does not remove."""
    on_path = shutil.which("uv")
    if on_path and _works(on_path):
        return on_path
    own = TOOLS / "bin" / "uv"
    if not (own.exists() and _works(str(own))):
        say("installing uv")
        _make_tools()
        run(
            [
                TOOLS / "bin" / "python", "-m", "pip", "install", "-q",
                "--require-hashes", "--only-binary=:all:", "-r", UV,
            ],
            "installing uv",
            advice=NETWORK,
        )  # fmt: skip
    return str(own)


def _make_tools() -> None:
    """Make a small environment only for uv; Debian has the module `venv` in its own package."""
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    python = str(base) if base.exists() else sys.executable
    run(
        [python, "-m", "venv", "--clear", TOOLS],
        "making an environment for uv",
        advice=f"Install it with: apt-get install python3.{sys.version_info.minor}-venv",
    )


def _works(uv: str) -> bool:
    asked = subprocess.run([uv, "--version"], capture_output=True, check=False, env=os.environ)
    return asked.returncode == 0


if __name__ == "__main__":
    main_of(set_up_environment)
