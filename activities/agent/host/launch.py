"""How a supervisor is brought to life so that it outlives the connection that asked for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..errors import RefusedError
from ..folders import DEVICES, Run
from . import cgroups, device_files, run_gpus


def archive() -> str:
    """The file that this agent runs from."""
    return os.path.abspath(sys.argv[0])


def _supervisor_command(run: Run) -> list[str]:
    """What starts the supervisor of a run; nothing in it is secret."""
    return [sys.executable, "-I", "-S", archive(), "supervise", run.folders.root, run.run_id]


def unit_of(run_id: str) -> str:
    """The name of a run's systemd unit."""
    return "baseload-%s.service" % run_id


def launch(run: Run, spec: dict[str, Any], supervise: Callable[[], None]) -> None:
    """Start the supervisor by the runtime that the run was staged for.

    supervise: what the supervisor does where the runtime is not systemd.
    Raises: RefusedError `systemd`; `gpu-device`, see `device_files.of_run`.
    """
    # Here, because systemd lets the supervisor itself open no other device any more.
    names = device_files.of_run(spec)
    if spec.get("runtime") == "podman":
        run_gpus.options(spec)
    if names is not None:
        run.write(DEVICES, {"names": names}, durable=False)
    if spec.get("runtime") == "systemd":
        _launch_unit(run, spec, names)
    else:
        _launch_detached(run, supervise)


def _launch_unit(run: Run, spec: dict[str, Any], names: list[str] | None) -> None:
    arguments = [
        "systemd-run",
        "--quiet",
        "--collect",
        "--unit",
        unit_of(run.run_id),
        "--property=KillMode=control-group",
        "--property=OOMPolicy=continue",
        "--property=TimeoutStopSec=%d" % (int(spec.get("grace_s") or 0) + 15),
        "--property=TasksMax=%d" % cgroups.most_tasks(spec),
        "--property=LimitNOFILE=1048576:1048576",
    ]
    if spec.get("is_idle_workload"):
        arguments += ["--property=CPUWeight=1", "--property=IOWeight=1"]
    if spec.get("federated"):
        arguments += ["--property=MemorySwapMax=0", "--property=LimitCORE=1:1"]
    if spec.get("memory_bytes"):
        arguments.append("--property=MemoryMax=%d" % spec["memory_bytes"])
    if spec.get("cpu_count"):
        arguments.append("--property=CPUQuota=%d%%" % int(float(spec["cpu_count"]) * 100))
    if names is not None:
        allowed = device_files.paths_of(names)
        arguments.append("--property=DevicePolicy=closed")
        arguments += ["--property=DeviceAllow=%s rw" % path for path in allowed]
    done = subprocess.run(
        arguments + _supervisor_command(run),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    words = done.stderr.decode(errors="replace").strip()
    if done.returncode != 0 and "already" not in words:
        raise RefusedError("systemd", "systemd-run: exit %d: %s" % (done.returncode, words))


def _launch_detached(run: Run, supervise: Callable[[], None]) -> None:
    """Fork twice with a new session between: nothing of the caller's can reach the supervisor.

    It goes on in this interpreter, because another one takes as long to start as all the rest.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        notes = os.open(run.at("supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(nothing, 0)
        os.dup2(notes, 1)
        os.dup2(notes, 2)
        os.closerange(3, 256)
        os.chdir(run.path)
        supervise()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the forked child must never return
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(126)
