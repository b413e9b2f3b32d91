"""The first process of a run: as which user, in which folder, with which environment."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import signal
import stat
from collections.abc import Iterable
from typing import Any

from ..folders import DEVICES, OWN_ENVIRONMENT, Run
from ..loading import load
from . import (
    cgroups,
    command_file,
    containers,
    mount_namespace,
    own_folders,
    prctl,
    run_contents,
    run_datastores,
    run_gpus,
    run_keys,
)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH")
"""The variables by which an image finds its programs. A machine that is the run's image gives them
to whoever logs in."""
LEAST_PRIORITY = 19
OOM_SCORE = "300"
"""When memory runs out, the kernel ends commands before whatever else runs on the machine."""


def environment(run: Run, spec: dict[str, Any]) -> dict[str, str]:
    """What the command finds in its environment; nothing of the agent's own."""
    job_id, worker = _job_of(run.run_id)
    variables = {
        "PATH": DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "HOME": run.at("work"),
        "PYTHONUNBUFFERED": "1",
        "BASELOAD_JOB_ID": job_id,
        "BASELOAD_WORKER": worker,
        "BASELOAD_WORKERS": "1",
    }
    if spec.get("machine_image"):
        variables.update({name: os.environ[name] for name in OF_THE_IMAGE if name in os.environ})
    variables.update({key: str(value) for key, value in (spec.get("environment") or {}).items()})
    if spec.get("packages_path"):
        _enter_environment(run, spec["packages_path"], variables)
    variables.update(
        BASELOAD_RUN_ID=run.run_id,
        BASELOAD_INPUT=run.at("input"),
        BASELOAD_CHECKPOINTS=run.at("input/checkpoints"),
        BASELOAD_OUTPUT=run.at("output"),
        BASELOAD_STATE=run.at("state"),
    )
    variables.update(run_gpus.variables(spec))
    variables.update(run_contents.variables(spec, run.path))
    variables.update(run_keys.variables(spec, run.path))
    variables.update(run_datastores.variables(spec, run.path))
    if spec.get("port"):
        variables["BASELOAD_PORT"] = str(spec["port"])
    return variables


def _enter_environment(run: Run, shared: str, variables: dict[str, str]) -> None:
    """Put the environment of the job's packages in front, and before it that of the run itself."""
    own = run.at(OWN_ENVIRONMENT)
    found = [own, shared] if os.path.isdir(own) else [shared]  # An earlier release made none.
    folders = [os.path.join(one, "bin") for one in found]
    variables["PATH"] = ":".join([*folders, variables["PATH"]])
    variables["VIRTUAL_ENV"] = found[0]


def spawn(run: Run, spec: dict[str, Any], log: int, confinement: Any = None) -> int:
    """Start the command with `log` as its stdout and stderr; its process id.

    confinement: of the run of a federated job, see `federated/confinement.py`.
    """
    run_keys.write(run, spec)
    if spec.get("runtime") == "podman":
        arguments, variables = containers.prepare(
            run, spec, environment(run, spec), confinement and confinement.options()
        )
        user, folder = None, run.path  # podman is ours: it must find no file of the job's.
    else:
        command_file.write(run, spec, {})
        arguments, variables = command_file.ARGUMENTS, environment(run, spec)
        user, folder = spec.get("user"), run.at("work")
    identity = identity_of(user, spec, variables)
    devices = run.read(DEVICES)
    groups = cgroups.make(run, spec) if spec.get("runtime") == "process" else []
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(log, 2)
        cgroups.enter(groups)
        enter_mounts(run, spec, devices)
        if confinement is not None:
            confinement.enter()
        os.setsid()
        if spec.get("is_idle_workload"):
            os.nice(LEAST_PRIORITY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        take_streams(nothing, log, log)
        become(folder, identity, cgroups.most_tasks(spec))
        if confinement is not None:
            confinement.harden()
        os.execvpe(arguments[0], arguments, variables)
    except BaseException as error:  # noqa: BLE001 - the forked child must never return
        os.write(2, ("baseload: the command could not be started: %s\n" % error).encode())
        os._exit(126)


def enter_mounts(run: Run, spec: dict[str, Any], devices: dict[str, Any] | None) -> None:
    """Give this process the root, the /dev, the folders and the contents of the run.

    devices: None where the run has those of the machine; others need root. Raises: OSError.
    """
    if spec.get("system_layer"):
        load("host.run_root:enter")(spec["system_layer"])
    has_own_mounts = False
    if devices is not None:
        own = own_folders.make(run)
        has_own_mounts = mount_namespace.enter(run.folders, devices["names"], own)
    if spec.get("bindings"):
        load("datastores.binding:enter")(run, spec["bindings"])
    if spec.get("runtime") != "podman":  # A container has them as volumes.
        _show_contents(run, spec, mounts=has_own_mounts)


def _show_contents(run: Run, spec: dict[str, Any], *, mounts: bool) -> None:
    """Show a run its contents, in this process's own mount namespace where `mounts` says so.

    Raises: OSError, when one of them is not here.
    """
    for place, content in run_contents.places(run.folders, spec).items():
        target = run.at(place)
        if mounts:
            _have_folder(target)
            mount_namespace.mount(content, target, None, mount_namespace.MS_BIND)
            mount_namespace.make_read_only(target)
            continue
        os.stat(content)
        if stat.S_ISDIR(os.lstat(target).st_mode):
            os.rmdir(target)
            os.symlink(content, target)
        if os.geteuid() == 0 and spec.get("user"):
            os.chmod(run.folders.contents, 0o711)


def _have_folder(place: str) -> None:
    """Have a folder at the place of a content, in the place of a link that may be there.

    A device starts the same run again. Meanwhile its command, whose account has the folder above,
    may have put a link there, and root would mount what the command likes where it likes.
    """
    if os.path.islink(place):
        os.unlink(place)
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o755)


def _job_of(run_id: str) -> tuple[str, str]:
    """`<job id>-<worker index>-<attempt>` taken apart."""
    parts = run_id.rsplit("-", 2)
    if len(parts) == 3:
        return parts[0], parts[1]
    return run_id, "0"


def identity_of(
    user: str | None, spec: dict[str, Any], variables: dict[str, str]
) -> tuple[list[int], int, int] | None:
    """All groups of the command, its account and its first group; None: those of this process."""
    if not user:
        return None
    entry = pwd.getpwnam(user)
    variables.setdefault("USER", user)
    variables.setdefault("LOGNAME", user)
    groups = os.getgrouplist(user, entry.pw_gid)
    if spec.get("packages_group") is not None:
        groups.append(spec["packages_group"])
    groups += run_gpus.groups(spec)
    return groups, entry.pw_uid, entry.pw_gid


def give_streams(user: str | None, streams: Iterable[int]) -> None:
    """Let the account of a run open these pipes or terminals again, as `> /dev/stderr` does."""
    if user:
        for stream in streams:
            os.fchown(stream, pwd.getpwnam(user).pw_uid, -1)
            os.fchmod(stream, 0o600)


def take_streams(stdin: int, stdout: int, stderr: int) -> None:
    """Make these descriptors the standard streams of this process, and close all others."""
    for number, given in enumerate([os.dup(one) for one in (stdin, stdout, stderr)]):
        os.dup2(given, number)
    os.closerange(3, 256)


def become(folder: str, identity: tuple[list[int], int, int] | None, most_tasks: int) -> None:
    """Become a process of a run: its account, signals, limits and folder; there is no way back."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    if identity is not None:
        groups, uid, gid = identity
        os.setgroups(groups)
        os.setgid(gid)
        # Of an account, which is this run's alone: a run that forks for ever stops itself only.
        with contextlib.suppress(ValueError):  # This process itself may have fewer.
            resource.setrlimit(resource.RLIMIT_NPROC, (most_tasks, most_tasks))
        os.setuid(uid)
        prctl.forbid_new_privileges()
    os.chdir(folder)
