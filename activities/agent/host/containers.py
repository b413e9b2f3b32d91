"""Runs inside a container image, by podman; the container's name is the run's id."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

from ..folders import COMMAND, SETUP, VARIABLES, Run
from . import cgroups, command_file, run_contents, run_datastores, run_gpus, run_keys

STOP_MARGIN_S = 15.0
INSIDE = "/baseload"
# podman reads the file of variables by lines of at most 64 KiB; a character has at most 4 bytes.
LINE_CHARACTERS = 15000


def podman(arguments: list[str], limit_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    """Run one podman command; its output is returned, not printed."""
    return subprocess.run(
        ["podman", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=limit_s,
        check=False,
    )


def answers() -> bool:
    """Whether podman is installed and able to work here."""
    try:
        # Not `info`, which also asks which package each helper is of, for a fifth of a second.
        return podman(["ps", "--quiet"], 20.0).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def prepare(
    run: Run,
    spec: dict[str, Any],
    variables: dict[str, str],
    confined: list[str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The podman command that runs the job, and podman's own environment.

    confined: options of a container of a federated job, which has no network of the machine.

    The command and its values reach the container by files that only we and the job can read; never
    on a command line, and never through podman's own environment, where a job could say what
    podman, as our user, loads and whose settings it follows.
    """
    inside = _inside(spec, variables)
    own = dict(os.environ)
    # So that the client and its monitor are found when this run's supervisor is lost.
    own["BASELOAD_RUN_ID"] = run.run_id
    lines = {name: value for name, value in inside.items() if _fits_a_line(value)}
    command_file.write(run, spec, {name: inside[name] for name in inside if name not in lines})
    env_file = _env_file(run, lines)
    arguments = [
        "podman",
        "run",
        "--name",
        run.run_id,
        "--replace",
        "--pull=never",
        *(confined or ["--network=host"]),
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--log-driver=none",
        # What an image declares as a volume is part of the container, counted and removed with it.
        "--image-volume=ignore",
        "--env-file",
        env_file,
        "--workdir",
        INSIDE + "/work",
        *_limits(spec),
        *_mounts(run, spec),
        *run_contents.volumes(run, spec, INSIDE),
        *run_keys.volumes(run, INSIDE),
        *run_datastores.volumes(run, spec, INSIDE),
        *_user(spec),
    ]
    if not spec.get("owned"):
        # Else podman gives the proxy variables of this machine's owner to the command.
        arguments.append("--http-proxy=false")
    arguments += run_gpus.options(spec)
    image = spec.get("image_id") or spec["image"]
    return [*arguments, "--entrypoint", "", image, *command_file.ARGUMENTS], own


def _inside(spec: dict[str, Any], variables: dict[str, str]) -> dict[str, str]:
    """The variables of the command in its container."""
    inside = dict(variables)
    inside.update(
        HOME=INSIDE + "/work",
        BASELOAD_INPUT=INSIDE + "/input",
        BASELOAD_OUTPUT=INSIDE + "/output",
        BASELOAD_STATE=INSIDE + "/state",
        BASELOAD_CHECKPOINTS=INSIDE + "/input/checkpoints",
        # Else the hook that NVIDIA's tools may have installed here brings all GPUs that it names.
        NVIDIA_VISIBLE_DEVICES="void",
    )
    inside.update(run_contents.variables(spec, INSIDE))
    inside.update(run_keys.variables(spec, INSIDE))
    inside.update(run_datastores.variables(spec, INSIDE))
    if "PATH" not in (spec.get("environment") or {}):
        del inside["PATH"]
    return inside


def _env_file(run: Run, lines: dict[str, str]) -> str:
    """Write the variables that podman can read; the path of their file."""
    env_file = run.at(VARIABLES)
    descriptor = os.open(env_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines("%s=%s\n" % pair for pair in lines.items())
    return env_file


def _fits_a_line(value: str) -> bool:
    return len(value) <= LINE_CHARACTERS and not {"\n", "\r"} & set(value)


def _limits(spec: dict[str, Any]) -> list[str]:
    limits = ["--pids-limit", str(cgroups.most_tasks(spec))]
    if spec.get("memory_bytes"):
        limits += ["--memory", "%db" % spec["memory_bytes"]]
    if spec.get("cpu_count"):
        limits += ["--cpus", str(min(float(spec["cpu_count"]), float(os.cpu_count() or 1)))]
    return limits


def _mounts(run: Run, spec: dict[str, Any]) -> list[str]:
    mounts, contents = [], run_contents.places(run.folders, spec)
    for name, mode in (("work", "rw"), ("input", "ro"), ("output", "rw"), ("state", "rw")):
        if name in contents:  # podman refuses two volumes at one place.
            continue
        mounts += ["--volume", "%s:%s/%s:%s" % (run.at(name), INSIDE, name, mode)]
    if run.has(SETUP):
        mounts += ["--volume", "%s:%s/%s:rw" % (run.at(SETUP), INSIDE, SETUP)]
    return [*mounts, "--volume", "%s:%s/%s:ro" % (run.at(COMMAND), INSIDE, COMMAND)]


def _user(spec: dict[str, Any]) -> list[str]:
    if not spec.get("user"):
        return []
    entry = pwd.getpwnam(spec["user"])
    return ["--user", "%d:%d" % (entry.pw_uid, entry.pw_gid)]


def stop_in_background(run_id: str, grace_s: float) -> None:
    """Ask podman to TERM the container and to KILL it after the grace."""
    arguments = ["podman", "stop", "--ignore", "--time", str(max(0, int(grace_s))), run_id]
    pid = os.fork()
    if pid:
        return
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.execvp(arguments[0], arguments)
    finally:
        os._exit(126)


def remove(run_id: str) -> bool:
    """End and remove the container if it is there; whether it is gone."""
    try:
        podman(["rm", "--force", "--volumes", "--ignore", "--time", "0", run_id])
        return podman(["container", "exists", run_id]).returncode == 1
    except (OSError, subprocess.TimeoutExpired):
        return False


def layer_of(run_id: str) -> str | None:
    """The folder of what the container has written outside of the run's folders; None: no such."""
    try:
        done = podman(["inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", run_id])
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = done.stdout.decode(errors="replace").strip()
    return path if done.returncode == 0 and path.startswith("/") else None
