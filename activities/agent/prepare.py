"""The preparation of a node: folders, the job user, the logins; and its reboot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from typing import Any

from .cache import service
from .errors import RefusedError
from .folders import JOB_USER, Folders, forget, write_json
from .host import job_accounts, join_file, logins, mount_namespace, network_wall, run_root
from .loading import load

PEER_LIMIT_S = 3.0
CONSOLE = "/usr/local/lib/baseload/console.py"
"""The program by which the console of this machine shows the status of its node; join.sh puts it
there, and boot drives have it."""
STATUS = "status.json"
"""The file that it reads, see `deploy/node/console.py`."""


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Prepare this machine; a repeat changes nothing.

    node_id: of the node that this machine is; what an idle workload of another one has left ends.
    exclusive: the machine serves the platform alone, so every other login is closed (root only).
    cache: the machine serves its region's cache, see `cache/service.py: serve_here`.
    network_wall: what is closed to jobs, see `host/network_wall.py: build`; None leaves all open,
    and `no_wall_reason` of the answer says why a wall that was asked for cannot be had.
    `open_gpus_reason` says why a job can open GPUs that it was not allocated.
    `no_run_root_reason` says why root can give no run a root of its own, with Debian packages.
    `no_confinement_reason` says why no run of a federated job can be confined here, and
    `no_attestation_reason` why the machine proves nothing of what it runs.
    `has_console` says whether the machine has a console that shows the node's status.
    `nfs_way` and `smb_way` say how datastores are reached from here.
    Raises: RefusedError `job-user`, `sshd-config`, `no-key`, `tree-alive`.
    """
    folders = Folders(request.get("root", ""))
    made = folders.make()
    load("idle.workload:end_of_others")(folders, request.get("node_id"))
    is_root = os.geteuid() == 0
    job_user = job_accounts.make(JOB_USER) if is_root else None
    closed = bool(request.get("exclusive")) and is_root
    if closed:
        logins.close_others(request.get("authorized_key") or "")
    cache = request.get("cache")
    wall = request.get("network_wall")
    if wall is None:
        network_wall.remove(folders)
    return {
        "no_wall_reason": network_wall.build(folders, wall) if wall is not None else None,
        "open_gpus_reason": mount_namespace.prepare(folders),
        "no_run_root_reason": run_root.why_not(folders) if is_root else None,
        "no_confinement_reason": load("federated.trial:why_not")(folders),
        "no_attestation_reason": load("federated.attestation:why_not")(),
        "cache": service.serve_here(folders, cache) if cache else None,
        **load("datastores.kernel:ways")(),
        "folders_made": made,
        "job_user": job_user,
        "unreachable_peers": unreachable(request.get("peers") or []),
        "closed_logins": closed,
        "has_console": os.path.exists(CONSOLE),
    }


def release(request: dict[str, Any]) -> dict[str, Any]:
    """End the idle workload and the cache, open the network, unmount datastores, undo join.sh.

    The logins are restored. A repeat changes nothing.

    The key goes last, so that a repeat can log in until all else is done, and then the port on the
    router by which the machine is reached.
    Raises: RefusedError `sshd-config`.
    """
    folders = Folders(request.get("root", ""))
    load("idle.workload:end")(folders)
    forget(os.path.join(folders.root, STATUS))
    service.end_serving(folders)
    load("host.image_mirror:forget")()
    network_wall.remove(folders)
    load("datastores.kernel:unmount_all")(folders)
    opened = logins.open_again() if os.geteuid() == 0 else []
    left = request.get("leaves")
    changed = join_file.leave(left, folders, request["authorized_key"]) if left else []
    # After the key: it may be by this port that a repeat logs in. If this is the last that is done
    # here, the keeper sees in the join file that the port is to be closed.
    load("upnp.keeper:end_unjoined")(join_file.paths(folders))
    return {"opened": opened, "left": changed}


def show_status(request: dict[str, Any]) -> dict[str, Any]:
    """Keep the status of the node for this machine's console; a repeat changes nothing.

    status: `active` or `maintenance`.
    """
    folders = Folders(request.get("root", ""))
    status = {"node_id": request["node_id"], "status": request["status"]}
    write_json(os.path.join(folders.root, STATUS), status)
    return {}


def unreachable(peers: list[list[Any]]) -> list[str]:
    """The `host:port` of each peer that accepts no TCP connection within 3 s."""
    failed: dict[int, str] = {}

    def try_one(index: int, host: str, port: int) -> None:
        try:
            socket.create_connection((host, port), PEER_LIMIT_S).close()
        except OSError:
            failed[index] = "%s:%d" % (host, port)

    threads = [
        threading.Thread(target=try_one, args=(index, str(peer[0]), int(peer[1])))
        for index, peer in enumerate(peers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [failed[index] for index in sorted(failed)]


def reboot(request: dict[str, Any]) -> dict[str, Any]:
    """Restart the machine one second from now, so that this answer still arrives.

    Raises: RefusedError `needs-root`.
    """
    del request
    if os.geteuid() != 0:
        raise RefusedError("needs-root", "reboot: the node's account is not root")
    subprocess.Popen(
        ["/bin/sh", "-c", "sleep 1; systemctl reboot || reboot || reboot -f"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    sys.stderr.write("restarting in 1 s\n")
    return {}
