"""The folders of a run in the place of those that everybody on a machine may write to.

Without them one run can take a name there that another one counts on, or talk to it by a socket.
"""

from __future__ import annotations

import contextlib
import os

from ..folders import Run

OWN = "own"
"""The folder of the run that has them, which counts as disk that the run uses."""
PLACES = {"/tmp": "tmp", "/var/tmp": "var-tmp", "/run/lock": "lock"}


def make(run: Run) -> dict[str, str]:
    """Make the folders of a run; by place, what is to be mounted there.

    A place that this machine does not have gets none, nor does one in which the run itself lies.
    """
    made = {}
    for place, name in PLACES.items():
        here = os.path.realpath(place)
        if os.path.isdir(here) and not os.path.realpath(run.path).startswith(here + os.sep):
            folder = os.path.join(run.at(OWN), name)
            with contextlib.suppress(FileExistsError):
                os.makedirs(folder, 0o755)
            os.chmod(folder, 0o1777)
            made[here] = folder
    return made
