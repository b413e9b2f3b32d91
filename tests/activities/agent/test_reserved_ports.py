"""The port and the hostname of a reservation, with the wall around the network of jobs."""

import subprocess
import sys

from tests.activities.agent.test_network_wall import (
    ASK,
    LISTEN,
    OWN,
    Walled,
    asked,
    beyond,
    python,
    walled,
)
from tests.activities.waiting import wait_for

__all__ = ["beyond", "walled"]


def test_a_reserved_port_is_reached_from_the_network_and_by_no_other_job(
    walled: Walled, beyond: list[str]
) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    run_id = "job-reserved-0-1"
    walled.run(run_id, python(LISTEN, OWN), user="baseload-job", port=OWN, is_port_private=False)
    wait_for(walled.path(run_id, "work/ready").exists, "the port")

    def is_answered() -> bool:  # Within the second that it is waited for, on a busy machine.
        found = subprocess.run(
            [*beyond, sys.executable, "-c", ASK, f"10.98.0.1:{OWN}"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        return found.stdout.startswith(f"10.98.0.1:{OWN} hello\n")

    wait_for(is_answered, "an answer at the reserved port")
    place = f"127.0.0.1:{OWN}"
    assert asked(walled, "job-reserving-0-1", place) == {place: "no"}


SPEAK = """
import socket, sys
near = socket.inet_aton("10.98.0.1")
for port in (5353, 5355, 5354):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, near)
    one.bind(("", port))
    try:
        one.sendto(b"as %d" % port, ("224.0.0.251", 5353))
    except OSError:
        pass
"""
HEAR = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("", 5353))
group = socket.inet_aton("224.0.0.251") + socket.inet_aton("10.98.0.2")
one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
one.settimeout(20)
print("hears", flush=True)
print(one.recv(99).decode(), flush=True)
"""


def test_a_job_asks_for_hostnames_of_the_link_and_answers_for_none(
    walled: Walled, beyond: list[str]
) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    hearing = subprocess.Popen(
        [*beyond, sys.executable, "-c", HEAR], stdout=subprocess.PIPE, text=True
    )
    try:
        assert hearing.stdout is not None
        assert hearing.stdout.readline() == "hears\n"
        walled.run("job-speaking-0-1", python(SPEAK), user="baseload-job")
        assert walled.exit_of("job-speaking-0-1")["exit_code"] == 0
        assert hearing.stdout.readline() == "as 5354\n"  # The first packet that has arrived.
    finally:
        hearing.kill()
        hearing.communicate()
