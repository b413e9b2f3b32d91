"""`python -m tests.doubles.ngrok HOST:PORT`: the agent as a process, with a tunnel to there.

Prints one JSON line with the public address when it serves.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading

from tests.doubles.ngrok.double import API_PORT, NgrokDouble


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.doubles.ngrok", description=__doc__)
    asked.add_argument("to", help="HOST:PORT to which the tunnel leads")
    asked.add_argument("--api-port", type=int, default=API_PORT, help="0: any free one")
    chosen = asked.parse_args()
    host, _, port = chosen.to.rpartition(":")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with NgrokDouble(rate=1.0, port=chosen.api_port) as double:
        public = double.open(host or "127.0.0.1", int(port))
        shown = {"endpoint": double.url, "public_url": f"tcp://{public[0]}:{public[1]}"}
        sys.stdout.write(json.dumps(shown) + "\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
