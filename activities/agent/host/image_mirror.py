"""The mirror of a region, through which podman pulls images that everybody may pull.

podman learns of it by a registries.conf for one pull: that of the machine's owner, with the mirror
added. What the owner says of a registry stays: such a registry gets no mirror.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from ..cache.location import answers
from ..folders import Folders

SYSTEM = "/etc/containers"
VARIABLE = "CONTAINERS_REGISTRIES_CONF"
CONFIGURATION = "registries.conf"
MARK = "# baseload: the cache of this machine's region\n"
SECTION = """
[[registry]]
prefix = "%(name)s"
location = "%(name)s"
insecure = %(insecure)s
[[registry.mirror]]
location = "%(mirror)s/%(path)s"
"""


def variables(
    folders: Folders, mirror: dict[str, Any] | None, environment: dict[str, str]
) -> dict[str, str] | None:
    """The variables of one pull by which podman asks the mirror first; None: there is none now.

    mirror: `address` (host:port), `authority` (who vouches for it, in PEM), and `registries`, those
    that it mirrors, as `host` or `http://host`.
    """
    if not mirror or not answers(mirror["address"]):
        return None
    _trust(environment, mirror["address"], mirror["authority"])
    own = _own_configuration(environment)
    path = os.path.join(folders.root, CONFIGURATION)
    part = "%s.%d" % (path, os.getpid())
    with open(part, "w") as file:
        file.write(own + _sections(own, mirror["address"], mirror["registries"]))
    os.chmod(part, 0o644)
    os.rename(part, path)
    return dict(environment, **{VARIABLE: path})


def path_of(registry: str) -> str:
    """The name of a registry in a path of the mirror, where no colon may be."""
    return registry.replace(":", "__")


def _sections(own: str, address: str, registries: Sequence[str]) -> str:
    found = []
    for registry in registries:
        scheme, _, name = registry.rpartition("://")
        if '"%s"' % name not in own:
            insecure = "true" if scheme == "http" else "false"
            fields = {"name": name, "insecure": insecure, "mirror": address, "path": path_of(name)}
            found.append(SECTION % fields)
    return "".join(found)


def _own_configuration(environment: dict[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    places = [
        environment.get(VARIABLE) or "",
        os.path.join(home, ".config/containers", CONFIGURATION),
        os.path.join(SYSTEM, CONFIGURATION),
    ]
    for path in places:
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            return file.read() + "\n"
    return ""


def _trust(environment: dict[str, str], address: str, authority: str) -> None:
    """Let podman know who vouches for the mirror, and for nothing but the mirror."""
    path = os.path.join(_certificates(environment), address, "ca.crt")
    content = MARK + authority
    with contextlib.suppress(OSError), open(path) as file:
        if file.read() == content:
            return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(content)


def _certificates(environment: dict[str, str]) -> str:
    if os.geteuid() == 0:
        return os.path.join(SYSTEM, "certs.d")
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, ".config/containers/certs.d")


def forget() -> None:
    """Remove what podman was given of mirrors; a repeat changes nothing."""
    folder = _certificates(dict(os.environ))
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name, "ca.crt")
            with contextlib.suppress(OSError):
                with open(path, errors="replace") as file:
                    is_ours = file.read(len(MARK)) == MARK
                if is_ours:
                    os.unlink(path)
                    os.rmdir(os.path.dirname(path))
