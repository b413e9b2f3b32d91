"""The staging of a run: puts everything in place that the run needs, before its start."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import time
from typing import Any

from ..cache.location import PackageCache
from ..errors import RefusedError
from ..federated import terms
from ..files import code as uploads
from ..files.removal import unless_removed
from ..folders import OWN_ENVIRONMENT, Folders, Run, take_lock
from ..host import (
    disk,
    file_tree,
    images,
    job_accounts,
    network_wall,
    ports,
    run_contents,
    run_datastores,
)
from ..host.interpreter import interpreter_for_jobs
from ..idle import workload
from ..loading import load
from ..packages import environments, own_environment


def stage(request: dict[str, Any]) -> dict[str, Any]:
    """Make a run ready to start; a repeat changes nothing.

    owned: whether the run is of the machine's owner. What is installed for other runs is built and
    pulled without what the owner has set up: pip's settings, registry credentials, proxies.
    registry_login: USER:PASSWORD by which the registry of the image is asked; None: without one.
    allows_apt_packages: whether packages of the run are installed on the machine, where they stay;
    otherwise they are in a layer for the run's own root.

    The idle workload of the machine has ended before anything of the run is made.

    spec.json is written last, so its presence says that the run is staged.
    What pip has said to a refusal of packages is the log of the run.
    Raises: RefusedError `disk-full`, `no-code`, `packages`, `requirements`, `apt-not-allowed`,
    `apt-needs-root`, `apt`, `image`, `job-user`, `no-user`, `network-wall`, `removed`;
    `not-confined`, `bad-egress`, `no-cipher` for a run of a federated job;
    `image-away`, `packages-away`, where a registry or a package index may answer later;
    `port-taken`, where a service of this machine listens at the run's port.
    """
    folders = Folders(request.get("root", ""))
    run = folders.run(request["run_id"])
    with unless_removed(run):
        run.make(request["spec"].get("owner"))
        workload.give_way(folders, request["spec"])
        lock = take_lock(run.at("stage.lock"), wait=True)
        try:
            if not (run.has("spec.json") or run.has("process.json") or run.has("exit.json")):
                _stage(folders, run, request)
        except RefusedError as refused:
            is_shown = not terms.withholds_log(request["spec"])
            if refused.output and is_shown and not run.has("log"):
                with open(run.log, "x", errors="replace") as log:
                    log.write(refused.output)
            raise
        finally:
            os.close(lock or 0)
    return {}


def _stage(folders: Folders, run: Run, request: dict[str, Any]) -> None:
    spec = dict(request["spec"])
    if terms.is_federated(spec):
        load("federated.confinement:check")(spec)
    _check_disk(folders, run, request.get("disk_size_gb"))
    if request.get("apt_packages"):
        provide = load("packages.system_packages:provide")
        spec["system_layer"] = provide(folders, request["apt_packages"], request)
    _provide_programs(folders, run, spec, request)
    _say("copying the code")
    if spec.get("user"):
        more = {
            "job_id": (spec.get("environment") or {}).get("BASELOAD_JOB_ID"),
            "is_port_private": bool(spec.get("is_port_private")),
        }
        port = spec.get("port")
        # Before the wall keeps others off the port: a service of this machine would lose its own.
        ports.check(run, port, job_accounts.numbers())
        spec["user"] = job_accounts.claim(folders, run.run_id, spec["user"], port, more)
        network_wall.keep(folders, spec["user"])
    owner = _owner(spec.get("user"))
    if request.get("datastores"):
        provide, most_gb = load("datastores.verbs:provide"), request.get("disk_size_gb")
        spec["bindings"] = provide(run, request["datastores"], owner, most_gb)
        spec["datastores"] = sorted(request["datastores"])
    _make_work(folders, run, request.get("code_sha256"))
    own = ["work", "output", "state"]
    if "scratch" in spec.get("datastores", ()):
        own.append("scratch")
    if spec.get("packages_path"):
        own_environment.make(folders, run, spec)
        own.append(OWN_ENVIRONMENT)
    _give_folders(run, owner, own)
    run_contents.make(run, spec, owner)
    run_datastores.make(run, spec)
    run.write("spec.json", spec)


def _provide_programs(
    folders: Folders, run: Run, spec: dict[str, Any], request: dict[str, Any]
) -> None:
    """Pull the image, or build the environment of the packages. A machine that is the image itself
    has all programs of the run."""
    owned = bool(request.get("owned"))
    image = request.get("image") or spec.get("image")
    if image or spec.get("machine_image"):
        for name in ("python_packages", "requirements"):
            if request.get(name):
                words = "%s beside an image: put them into the image %s"
                raise RefusedError("packages", words % (name, image or spec["machine_image"]))
    if image:
        spec["image"], spec["owned"] = image, owned
        run_step = load("host.steps:run_step")
        with images.auth_file(run, image, request.get("registry_login")) as path:
            whose = images.For(owned, path, request.get("image_mirror"))
            spec["image_id"] = images.ready(folders, image, run_step, whose)
    elif not spec.get("machine_image"):
        spec["packages_path"], spec["packages_group"] = environments.environment(
            folders,
            _wanted(folders, request),
            owned=owned,
            cache=_package_cache(folders, request),
            layer=spec.get("system_layer"),
        )


def _package_cache(folders: Folders, request: dict[str, Any]) -> PackageCache | None:
    """The region's cache, if packages come through it."""
    address, authority = request.get("cache"), request.get("cache_authority")
    if not address:
        return None
    if request.get("cache_same_index") and not load("cache.client:has_same_index")(request):
        return None
    path = load("cache.client:authority_file")(folders, authority) if authority else None
    return PackageCache(address, path)


def _give_folders(run: Run, owner: tuple[int, int] | None, own: list[str]) -> None:
    """Make the missing folders of a run, and give them to its account."""
    for name in {"input", *own} - {"work", OWN_ENVIRONMENT}:
        os.makedirs(run.at(name), exist_ok=True)
    if owner is None:
        os.chmod(run.at("input"), 0o755)
        return
    for name in own:
        _give(run.at(name), owner)
        os.chmod(run.at(name), 0o700)
    os.chown(run.at("input"), owner[0], owner[1])
    os.chmod(run.at("input"), 0o500)


def _wanted(folders: Folders, request: dict[str, Any]) -> environments.Wanted:
    """What the run's environment has. Raises: RefusedError `requirements`, `no-code`."""
    packages = request.get("python_packages") or []
    if not request.get("requirements"):
        return environments.Wanted(packages)
    code = _code_of(folders, request.get("code_sha256"))
    _, version = interpreter_for_jobs(folders)
    has_conda = load("packages.conda:program")() is not None
    read = load("packages.requirements:read")
    found = read(code, request["requirements"], version.split()[0], has_conda)
    return environments.Wanted(packages, found)


def _code_of(folders: Folders, sha256: str | None) -> str:
    code = uploads.take(folders, sha256 or "")
    if code is None:
        raise RefusedError("no-code", "code %s: not unpacked on this node" % sha256)
    return code


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def _check_disk(folders: Folders, run: Run, disk_size_gb: Any) -> None:
    """Refuse a run for which there is no room, even when unused images have been removed."""
    wanted = disk.wanted_bytes(disk_size_gb)
    if disk.free_bytes(run.path) < wanted:
        unused_since = time.time() - images.ROOM_AGE_S
        images.prune(folders, unused_since, lambda: disk.free_bytes(run.path) >= wanted)
    free = disk.free_bytes(run.path)
    if free < wanted:
        raise RefusedError(
            "disk-full",
            "disk of the node: asked %.1f GB, %.1f GB free" % (wanted / 1e9, free / 1e9),
        )


def _owner(user: str | None) -> tuple[int, int] | None:
    if not user:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        words = "user %s: does not exist on this node; `prepare` creates the account"
        raise RefusedError("no-user", words % user) from None
    return entry.pw_uid, entry.pw_gid


def _make_work(folders: Folders, run: Run, sha256: str | None) -> None:
    """Make the run's own copy of the code, so that no other run sees its changes.

    Files without a time, as archives have them that depend on contents alone, get that of now.
    """
    if run.has("work"):
        return
    part = run.at("work.part")
    file_tree.remove(part)
    if sha256 is None:
        os.mkdir(part)
    else:
        now_s = int(time.time())

        def copy(source: str, target: str) -> None:
            shutil.copy2(source, target)
            if os.stat(target).st_mtime == 0:
                os.utime(target, (now_s, now_s))

        code = _code_of(folders, sha256)
        shutil.copytree(code, part, symlinks=True, copy_function=copy)
    os.rename(part, run.at("work"))


def _give(path: str, owner: tuple[int, int]) -> None:
    os.lchown(path, owner[0], owner[1])
    for folder, folders, names in os.walk(path):
        for name in folders + names:
            os.lchown(os.path.join(folder, name), owner[0], owner[1])
