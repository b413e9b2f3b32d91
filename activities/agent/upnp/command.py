"""The command of the keeper on a machine, as join.sh and its timer run it.

python3 -I -S FOLDER map --join-file FILE --api URL --port N --user NAME --host-key FILE
    maps the port, and writes `ADDRESS PORT` to descriptor 3, or nothing
python3 -I -S FOLDER keep --join-file FILE --api URL --announced ADDRESS:PORT
    keeps the mapping, once the platform has taken the announcement
python3 -I -S FOLDER failed --join-file FILE --api URL
    deletes it, unless the machine has been announced before
python3 -I -S FOLDER withdraw --join-file FILE --api URL
    deletes it
python3 -I -S FOLDER renew --join-file FILE [--port N --user NAME --host-key FILE]
    what the timer runs, with what was mapped
"""

from __future__ import annotations

import argparse
import os
import sys

from .keeper import Keeper
from .state_file import BusyError

RESULT = 3
"""The descriptor of what join.sh reads; the sentences are for a person, and go to stdout."""


def main() -> int:
    """Run the command in argv; return 0, also when the router refuses: joining goes on."""
    parser = argparse.ArgumentParser(prog="upnp")
    parser.add_argument("verb", choices=("map", "keep", "failed", "withdraw", "renew"))
    parser.add_argument("--join-file", required=True)
    parser.add_argument("--api", default="")
    parser.add_argument("--port", type=int, default=22)
    parser.add_argument("--user", default="")
    parser.add_argument("--host-key", default="")
    parser.add_argument("--announced", default="")
    asked = parser.parse_args()
    keeper = Keeper(asked.join_file)
    if not os.path.isdir(keeper.folder):
        return 0
    try:
        _do(keeper, asked)
    except BusyError as error:
        sys.stderr.write("upnp: %s\n" % error)
        return 1
    return 0


def _do(keeper: Keeper, asked: argparse.Namespace) -> None:
    joined = {
        "port": asked.port,
        "user": asked.user,
        "host_key": os.path.abspath(asked.host_key),
    }
    if asked.verb == "map":
        found = keeper.map(asked.api, joined)
        if found is not None:
            os.write(RESULT, ("%s %d\n" % found).encode())
    elif asked.verb == "keep":
        address, _, port = asked.announced.rpartition(":")
        keeper.keep(asked.api, (address, int(port)))
    elif asked.verb == "renew":
        keeper.renew(joined if asked.host_key else None)
    else:
        keeper.withdraw(asked.api, even_accepted=asked.verb == "withdraw")
