"""The console of this machine: whether it is there, and what it shows of the node's status.

`deploy/node/console.py` shows it, and reads the file that is written here.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .folders import Folders, write_json

PROGRAM = "/usr/local/lib/baseload/console.py"
"""What shows the console; join.sh puts it there, and boot drives have it."""
STATUS = "status.json"


def is_there() -> bool:
    """Whether this machine has a console that shows the node's status."""
    return os.path.exists(PROGRAM)


def show_status(request: dict[str, Any]) -> dict[str, Any]:
    """Keep the status of the node for the console; a repeat changes nothing.

    status: `active` or `maintenance`.
    """
    folders = Folders(request.get("root", ""))
    status = {"node_id": request["node_id"], "status": request["status"]}
    write_json(os.path.join(folders.root, STATUS), status)
    return {}


def forget_status(folders: Folders) -> None:
    """Show no status any more; silent when none is shown."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folders.root, STATUS))
