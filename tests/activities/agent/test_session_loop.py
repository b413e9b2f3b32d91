"""The loop of a session: who is not listened to, because a command reads slowly, is not silent."""

import os
import socket
import subprocess
import sys

import pytest

from activities.agent.sessions import frames

LOOP = """
import os, sys, time
from activities.agent.sessions import frames, session

class Running:
    def is_running(self):
        return True

session.SILENCE_S = 0.3
one = session.Session(Running())
reads, writes = os.pipe()
one.inlet = frames.Outlet(writes)
while one.inlet.has_room and one.goes_on():
    one.step([], 0.05)
until = time.monotonic() + 3 * session.SILENCE_S
while time.monotonic() < until and one.goes_on():
    one.step([], 0.05)
print("goes on" if one.goes_on() else "ended", flush=True)
until = time.monotonic() + 10
while one.goes_on() and time.monotonic() < until:
    one.step([], 0.05)
print("ended" if not one.goes_on() else "goes on", flush=True)
"""


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_command_that_reads_slowly_keeps_its_session_until_the_peer_goes(kind: str) -> None:
    if kind == "pipe":
        theirs, ours = os.pipe()
    else:
        ours, theirs = (one.detach() for one in socket.socketpair())
    loop = subprocess.Popen([sys.executable, "-c", LOOP], stdin=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    assert loop.stdout is not None
    with loop:
        content = b"x" * frames.MOST_FRAME
        for _ in range(frames.MOST_WAITING // frames.MOST_FRAME + 1):
            view = memoryview(frames.encode(frames.DATA, content))
            while view:
                view = view[os.write(ours, view) :]
        said = loop.stdout.readline()
        os.close(ours)
        rest = loop.stdout.readline()
    assert (said, rest) == (b"goes on\n", b"ended\n")
