"""Container images: pulled for runs, and removed when no run has used them for a while.

<root>/images/<image id>   an image that a run had pulled: the names that it got; its time of change
                           is that of its last use

Only these images are removed, because any other is of the machine's owner. Private images that the
owner has pulled, and credentials of registries, are for the owner's runs alone. An image that was
pulled by the login of a project says so in its note: no run takes it as it is here, so that each
project has to show its registry a login of its own, or that there is no need of one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ..errors import RefusedError
from ..folders import AUTH, Folders, Run, read_json, take_lock, write_json
from ..loading import load
from . import outages, private_images
from .containers import podman

PULL_S = 3600.0
PRUNE_S = 10.0
"""No further image is removed after this time, so that a caller gets its answer."""
DISCARD_S = 50.0
"""The same where all images of a device go, for whose end a caller waits longer."""
ROOM_AGE_S = 600.0
"""Even when room is needed, an image stays this long after its last use: a run may come with it."""
TRIES = 3
ANONYMOUS = "anonymous"
IMAGE_ID = re.compile(r"[0-9a-f]{64}\Z")
TAG_OF_DIGEST = re.compile(r":[^:/@]+(?=@)")
"""A tag beside a digest, which says what image it is without the tag."""
KNOWS_NOTHING = "#!/bin/sh\necho credentials not found in native keychain\nexit 1\n"
"""A credential helper that asks nobody, in the words by which podman goes on without one."""
OWNERS = re.compile(r"(\w+_proxy|registry_auth_file|docker_config)\Z", re.IGNORECASE)
"""The variables by which podman finds registry credentials or proxies of the machine's owner."""

ORDERS = ("run.oci.", "io.podman.annotations.", "org.systemd.property.", "module.wasm.")
"""The beginnings of annotations that the runtimes of containers obey, as root of this machine: to
write to a file, to take another filter of system calls, to stop a unit. Podman before 4.6 hands
those of images to them."""


@dataclass(frozen=True)
class For:
    """For whom an image is pulled.

    owned: whether it is for a run of the machine's owner, for whom an image that is here is taken
    as it is. For any other run its registry is asked, without the owner's credentials, so that the
    run gets what everybody may pull.
    auth_file: a file with the login of the run's project, by which the registry is asked in any
    case; None: there is none.
    mirror: of the region, which is asked before the registry for what everybody may pull, see
    `image_mirror.py: variables`.
    """

    owned: bool
    auth_file: str | None = None
    mirror: dict[str, Any] | None = None

    @property
    def uses_what_is_here(self) -> bool:
        return self.owned and self.auth_file is None


@contextlib.contextmanager
def auth_file(run: Run, image: str, login: str | None) -> Iterator[str | None]:
    """The file by which podman shows a registry a login, for root alone, gone afterwards.

    login: USER:PASSWORD; None: there is none, and no file.
    """
    if login is None:
        yield None
        return
    path = run.at(AUTH)
    registry = image.partition("/")[0]
    auth = base64.b64encode(login.encode()).decode()
    write_json(path, {"auths": {registry: {"auth": auth}}}, durable=False)
    try:
        yield path
    finally:
        os.unlink(path)


def ready(folders: Folders, image: str, run_step: Any, whose: For) -> str:
    """Have an image on this node, and return its id.

    Raises: RefusedError `image`, or `image-away` where the registry may answer later, with podman's
    own words; `disk-full`.
    """
    for _ in range(TRIES):
        try:
            before = _tags_of_all()
        except OSError as error:
            words = "image %s: this node has no podman (%s)" % (image, error)
            raise RefusedError("image", words) from error
        found, sent_by = id_of(image) if whose.uses_what_is_here else None, None
        if not found or _is_private(folders, image, found):
            found = _pulled(folders, image, run_step, whose)
            if found not in before:
                _check_layers(image, found)
            if load("host.image_layers:are_foreign")(folders, image, found, before):
                _must_be_sent(
                    folders,
                    image,
                    found,
                    before,
                    lambda store: _pulled(folders, image, run_step, whose, store),
                )
                sent_by = private_images.repository_of(image)
        with _locked(folders):
            tags = _tags_of(found)
            if tags is not None:
                _note_use(folders, found, tags, before, whose.auth_file is not None, sent_by)
                _check_annotations(image, found)
                return found
    raise RefusedError("image", "image %s: it is removed here as often as it is pulled" % image)


def _must_be_sent(
    folders: Folders,
    image: str,
    image_id: str,
    before: dict[str, set[str]],
    pull: Callable[[list[str]], str],
) -> None:
    """Check that the registry of an image sends all of its layers; else remove what was pulled.

    Raises: RefusedError `image`.
    """
    try:
        with load("host.image_layers:empty_store")(folders) as store:
            _must_be_same(image, image_id, pull(store))
    except BaseException:  # Also when the staging is ended: what was not checked may not stay.
        added = (_tags_of(image_id) or set()) - before.get(image_id, set())
        if image_id not in before:
            _removed([image_id])
        elif added:
            podman(["untag", image_id, *sorted(added)])
        raise


def _must_be_same(image: str, image_id: str, sent: str) -> None:
    if sent != image_id:
        raise RefusedError("image", "image %s: has changed while it was pulled" % image)


def _pulled(
    folders: Folders, image: str, run_step: Any, whose: For, store: Sequence[str] = ()
) -> str:
    """Pull an image, and return its id. store: podman's options for another store than its own."""
    words = "pulling %s" % image
    if whose.uses_what_is_here:
        arguments, options = ["podman", "pull", "--quiet", image], None
    else:
        options = None if whose.owned else _without_credentials(folders)
        # Named as of a registry, because other ways would lead to what lies on this machine.
        name = TAG_OF_DIGEST.sub("", image)
        arguments = ["podman", "pull", "--quiet", "docker://" + name]
        if whose.auth_file is not None:
            arguments[2:2] = ["--authfile", whose.auth_file]
    if whose.auth_file is not None:
        private_images.mark(folders, image)
    arguments[1:1] = store
    filled = _filled(folders)
    through = _through_mirror(folders, whose, options)
    done = (1, "")
    for each in [options] if through is None else [through, options]:
        done = run_step(words, arguments, PULL_S, each, filled)
        if found := _pulled_id(done):
            return found
    by = "" if whose.owned else " (asked without the credentials of the machine's owner)"
    if whose.auth_file is not None:
        by = " (asked by the login of the project's third-party key)"
    code = "image-away" if outages.of_registry(done[1]) else "image"
    raise RefusedError(code, "image %s%s: %s" % (image, by, done[1][-2000:].strip()))


def _through_mirror(
    folders: Folders, whose: For, options: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The options of a pull through the region's mirror; None: there is none for this image.

    The mirror serves everybody in the region, so what a login is needed for never passes it.
    """
    if not whose.mirror or whose.auth_file is not None:
        return None
    own = dict((options or {}).get("env") or os.environ)
    variables = load("host.image_mirror:variables")(folders, whose.mirror, own)
    return None if variables is None else dict(options or {}, env=variables)


def _pulled_id(done: tuple[int, str]) -> str | None:
    """The id of the image that podman has pulled; None: it has not."""
    code, output = done
    lines = output.strip().splitlines()
    return lines[-1] if code == 0 and lines and IMAGE_ID.match(lines[-1]) else None


def _check_layers(image: str, image_id: str) -> None:
    """Remove and refuse a pulled image whose layers are not those that its configuration names.

    The configuration gives an image its id. Podman before 5.2 compares no layers with it, and
    afterwards refuses the image to which that id belongs.
    """
    inspected = "{{json .RootFS.Layers}} {{.GraphDriver.Data.UpperDir}}"
    done = podman(["image", "inspect", "--format", inspected, image_id])
    layers, _, folder = done.stdout.decode(errors="replace").strip().rpartition(" ")
    parts = folder.split("/")
    if done.returncode != 0 or len(parts) < 2 or not IMAGE_ID.match(parts[-2]):
        return  # It is gone again, or stored in a way that does not show its layers.
    top = ""
    for digest in json.loads(layers) or []:
        layer = digest.partition(":")[2]
        top = sha256(("%s+%s" % (top, layer)).encode()).hexdigest() if top else layer
    if top != parts[-2]:
        _removed([image_id])
        raise RefusedError("image", "image %s: its layers are not of its configuration" % image)


def _check_annotations(image: str, image_id: str) -> None:
    done = podman(["image", "inspect", "--format", "{{json .Annotations}}", image_id])
    names = json.loads(done.stdout) or {} if done.returncode == 0 else {}
    orders = sorted(name for name in names if name.startswith(ORDERS))
    if orders:
        words = "image %s: has annotations that give orders to this machine: %s"
        raise RefusedError("image", words % (image, ", ".join(orders)[:500]))


def _filled(folders: Folders) -> list[str]:
    """The folders on whose file systems an image takes room, and runs have theirs."""
    done = podman(["info", "--format", "{{.Store.GraphRoot}}"])
    store = done.stdout.decode(errors="replace").strip()
    return [folder for folder in (folders.root, store) if os.path.isdir(folder)]


def _without_credentials(folders: Folders) -> dict[str, Any]:
    """Options of Popen by which podman finds no registry credentials and no proxy."""
    nobody = os.path.join(folders.root, ANONYMOUS)
    os.makedirs(nobody, mode=0o700, exist_ok=True)
    empty = os.path.join(nobody, "auth.json")
    write_json(empty, {"auths": {}}, durable=False)
    variables = {name: value for name, value in os.environ.items() if not OWNERS.match(name)}
    path = os.environ.get("PATH") or os.defpath
    variables.update(
        REGISTRY_AUTH_FILE=empty,
        DOCKER_CONFIG=nobody,
        PATH=_silence_helpers(os.path.join(nobody, "bin"), path) + os.pathsep + path,
    )
    if os.geteuid() == 0:  # Any other account has its images in its home.
        variables.update(HOME=nobody, XDG_CONFIG_HOME=nobody)
    return {"env": variables}


def _silence_helpers(folder: str, path: str) -> str:
    """A folder with a program in the place of each credential helper, which knows nothing."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for place in path.split(os.pathsep):
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                silent = os.path.join(folder, name)
                if name.startswith("docker-credential-") and not os.path.exists(silent):
                    descriptor = os.open(silent, os.O_WRONLY | os.O_CREAT, 0o700)
                    with os.fdopen(descriptor, "w") as file:
                        file.write(KNOWS_NOTHING)
    return folder


def prune(
    folders: Folders, oldest: float, is_enough: Callable[[], bool] | None = None
) -> list[str]:
    """Remove images that runs had pulled and none has used since `oldest`; return their ids.

    is_enough: asked before each image, those unused for longest first; True ends the removal.
    """
    private_images.prune(folders, oldest, lambda: set().union(*_tags_of_all().values()))
    notes = _notes(folders)
    until = time.monotonic() + PRUNE_S
    removed = []
    for image in sorted(notes, key=lambda name: notes[name]):
        if notes[image] >= oldest or time.monotonic() > until or (is_enough and is_enough()):
            break
        with _locked(folders), contextlib.suppress(OSError):
            if os.stat(_note(folders, image)).st_mtime < oldest and _forget(folders, image):
                removed.append(image)
    return removed


def discard(folders: Folders, named: set[str], *, everything: bool) -> list[str]:
    """Remove these images, or all that runs had pulled, but for those that open runs need.

    Returns those that could not be removed, with the names of those that no time was left for.
    """
    notes = set(_notes(folders))
    needed = {spec.get("image_id") for spec in folders.open_specs()}
    until, left = time.monotonic() + DISCARD_S, []
    for image in sorted((notes if everything else named & notes) - needed):
        with _locked(folders):
            is_gone = time.monotonic() < until and _forget(folders, image)
        if not is_gone and os.path.exists(_note(folders, image)):
            left.append("image " + image)
    return left


def _forget(folders: Folders, image: str) -> bool:
    """Remove an image unless a run or a container needs it; whether it is gone."""
    if image in {spec.get("image_id") for spec in folders.open_specs()}:
        return False
    tags = _tags_of(image)
    names = set((read_json(_note(folders, image)) or {}).get("names") or ())
    is_ours = tags is not None and tags <= names
    if is_ours and not _removed(sorted(tags or ()) or [image]):
        return False
    os.unlink(_note(folders, image))  # Also of an image to which the owner has given a name.
    return is_ours


def forget_torn(folders: Folders, image: str) -> None:
    """Remove an image whose pull a power cut has broken, unless a run or a container needs it."""
    with _locked(folders):
        if image not in {spec.get("image_id") for spec in folders.open_specs()}:
            _removed(sorted(_tags_of(image) or ()) or [image])


def _removed(names: list[str]) -> bool:
    """Remove an image by all its names; whether it is gone. It stays if a container has it."""
    try:
        return podman(["rmi", *names]).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _note_use(
    folders: Folders,
    image: str,
    tags: set[str],
    before: dict[str, set[str]],
    by_login: bool,
    sent_by: str | None,
) -> None:
    path = _note(folders, image)
    note = read_json(path)
    if note is None and image in before:
        return  # The owner's.
    names = set((note or {}).get("names") or ()) | (tags - before.get(image, set()))
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    # It stays so: who pulls it without a login may do so from a registry of its own.
    is_private = by_login or bool((note or {}).get("by_login"))
    # The repositories whose registries have sent all its layers, see `image_layers.py`.
    senders = {*((note or {}).get("sent_by") or ()), *((sent_by,) if sent_by else ())}
    document = {"names": sorted(names), "by_login": is_private, "sent_by": sorted(senders)}
    write_json(path, document, durable=False)


def _is_private(folders: Folders, image: str, image_id: str) -> bool:
    """Whether a project's login has brought the image, or one of its repository, to this node."""
    note = read_json(_note(folders, image_id)) or {}
    return bool(note.get("by_login")) or private_images.is_marked(folders, image)


def _notes(folders: Folders) -> dict[str, float]:
    """When each image that runs had pulled was last used, by id."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(os.path.join(folders.root, "images")):
            if IMAGE_ID.match(entry.name):
                found[entry.name] = entry.stat().st_mtime
    return found


def _note(folders: Folders, image: str) -> str:
    return os.path.join(folders.root, "images", image)


@contextlib.contextmanager
def _locked(folders: Folders) -> Iterator[None]:
    """While an image is noted or removed, so that none goes that has just been found here."""
    lock = take_lock(os.path.join(folders.root, "images.lock"), wait=True)
    try:
        yield
    finally:
        os.close(lock or 0)


def id_of(image: str) -> str | None:
    """The id of an image that is here; None: it is not."""
    done = podman(["image", "inspect", "--format", "{{.Id}}", image])
    found = done.stdout.decode(errors="replace").strip()
    return found if done.returncode == 0 and IMAGE_ID.match(found) else None


def _tags_of(image: str) -> set[str] | None:
    """The names of an image by its id; None: it is not here."""
    done = podman(["image", "inspect", "--format", "{{json .RepoTags}}", image])
    return set(json.loads(done.stdout) or ()) if done.returncode == 0 else None


def _tags_of_all() -> dict[str, set[str]]:
    """The names of every image here, by id."""
    done = podman(["images", "--all", "--format", "json"])
    images = json.loads(done.stdout or b"[]") if done.returncode == 0 else []
    return {str(image["Id"]): set(image.get("Names") or ()) for image in images or ()}
