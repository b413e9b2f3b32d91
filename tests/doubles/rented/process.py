"""A double as a process, until it is asked to end. Prints one JSON line when it serves."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable

from tests.doubles.rented.boot import Boot, NoBoot
from tests.doubles.rented.contained_boot import ContainedBoot
from tests.doubles.rented.double import RentedDouble
from tests.doubles.rented.plain_boot import PlainBoot

BOOTS: dict[str, type[Boot]] = {
    "contained": ContainedBoot,
    "plain": PlainBoot,
    "none": NoBoot,
}


def run(make: Callable[..., RentedDouble], name: str) -> None:
    """Serve `make(rate=, boot=, port=)` as the arguments say."""
    asked = argparse.ArgumentParser(prog=f"python -m tests.doubles.{name}")
    asked.add_argument("--port", type=int, default=0, help="0: any free one")
    asked.add_argument("--rate", type=float, default=1.0, help="the cloud's seconds in one of ours")
    asked.add_argument("--boot", choices=sorted(BOOTS), default="plain", help="what machines are")
    chosen = asked.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with make(rate=chosen.rate, boot=BOOTS[chosen.boot](), port=chosen.port) as double:
        sys.stdout.write(json.dumps({"endpoint": double.url, **double.environment}) + "\n")
        sys.stdout.flush()
        stop.wait()
