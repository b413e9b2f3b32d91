"""Every measurement as one table: `python -m tests.bench [--list] [NAME...]`.

Each step can be run alone; every figure is of this run and this machine. Nothing is asserted.
"""

import argparse
import signal
import sys
import time

from tests.bench.machine import heading
from tests.bench.measure import Row, table
from tests.bench.step import measured

STEPS = {
    "start": "starting and stopping each process, their memory, baseload --help",
    "offers": "GET /v1/offers and its rules against 10,000 nodes",
    "here": "this machine over OpenSSH: submit to running, a log's delay and throughput",
    "submit": "submissions over HTTP while jobs run",
    "throughput": "whole jobs, beside empty workflows with as many activities",
    "postgresql": "submissions and whole jobs, with Temporal's own server on PostgreSQL",
    "waiting": "10,000 jobs that wait",
    "queue": "rounds of placement over 100,000 waiting jobs of 50 demands on 1,000 nodes",
    "quiet": "2,000 quiet jobs on 250 nodes; their worker killed; 1,000 canceled",
    "forgotten": "2,000 quiet jobs on 250 nodes, adopted after the engine forgot everything",
    "billing": "bills over skipped hours, and through rules and ledger",
    "federated": "300 federated jobs from a service with a key of its own rate",
    "statement": "a statement of 1,000,000 postings, on SQLite and PostgreSQL: page, CSV, audit",
    "rules": "the pure rules of placement, beside bare loops",
    "state": "writing steps and reservations, beside bare inserts",
    "leases": "the sweep over 5,000 machines, beside one bare question",
    "clouds": "find_placement while one of five clouds hangs, beside none that does",
    "regions": "1,000 regions served by one process: memory and long polls",
    "devices": "10,000 devices in rows, on SQLite and PostgreSQL",
    "edge": "200 devices in one region: deployed to, quiet, and watched again after restarts",
    "edge_double": "the same with 200 doubles of devices, which take less CPU of this machine",
    "contents": "1 GB and 10,000 files of a dataset to a node, beside scp and tar over ssh",
    "datastores": "first byte of a file on NFS and SMB, and a copy, beside this disk",
    "transfers": "1 GB into the object store from the web and through the API, beside the disk",
    "burst": "20 jobs until each has a machine in a cloud, and the calls that it takes",
    "rented": "20 jobs on 20 rented machines until all run, and the calls that it takes",
    "engine": "starts and signals, beside the shortest calls to Temporal",
}
"""Modules beside this one, each with `rows()`, in the order of the table."""


def main() -> None:
    """Run the chosen steps; what has failed is said at the end and in the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="steps to run; all of them")
    parser.add_argument("--list", action="store_true", help="show the steps")
    chosen = parser.parse_args()
    if chosen.list:
        sys.stdout.writelines(f"{name:<12}{meaning}\n" for name, meaning in STEPS.items())
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave nothing behind
    unknown = set(chosen.names) - STEPS.keys()
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}: see --list")
    sys.exit(run(chosen.names or list(STEPS)))


def run(names: list[str]) -> int:
    """The exit status: how many steps were not measured. What was is printed, also when ended."""
    machine = heading()
    rows: list[Row] = []
    missing = list(names)
    for name in names:
        started = time.monotonic()
        try:
            rows += measured(name)
            missing.remove(name)
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
        except (KeyboardInterrupt, SystemExit):
            break
        finally:
            sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
    sys.stdout.write(f"{machine}\n\n{table(rows)}\n")
    if missing:
        sys.stdout.write(f"\nnot measured: {', '.join(missing)}\n")
    return len(missing)


if __name__ == "__main__":
    main()
