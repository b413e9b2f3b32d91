"""`python -m tests.doubles.gcp`: the double as a process, until it is told to end.

Prints one JSON line with its addresses when it serves.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from tests.doubles.gcp.boots import NAMES, boot_named
from tests.doubles.gcp.double import GcpDouble, service_account_key


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.doubles.gcp", description=__doc__)
    asked.add_argument("--host", default="127.0.0.1")
    asked.add_argument("--port", type=int, default=0, help="of the HTTP APIs; 0: any free one")
    asked.add_argument("--pubsub-port", type=int, default=0, help="of Pub/Sub; 0: any free one")
    asked.add_argument("--time-scale", type=float, default=1.0, help="operations go so much faster")
    asked.add_argument("--boot", choices=NAMES, default="usual", help="what VMs are made of")
    asked.add_argument("--key-file", type=Path, help="where to write a service account's key")
    chosen = asked.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with GcpDouble(
        boot=boot_named(chosen.boot),
        time_scale=chosen.time_scale,
        host=chosen.host,
        port=chosen.port,
        pubsub_port=chosen.pubsub_port,
    ) as double:
        told = {"endpoint": double.url, "project": double.project.id, **double.environment}
        if chosen.key_file is not None:
            chosen.key_file.write_text(json.dumps(service_account_key(double)))
            chosen.key_file.chmod(0o600)
            told["key_file"] = str(chosen.key_file)
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
