"""What a child says that reads from a server: it may be the server's by then."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.agent.datastores.child import Say, in_child
from activities.agent.errors import RefusedError


def answer(act: Callable[[Say], Any], **limits: Any) -> Any:
    return in_child("nfs://h/x", act, **{"stall_s": 5.0, "limit_s": 5.0, **limits})


def pipes() -> dict[str, int]:
    """The open pipes of this process: the identity of each, and its number."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # That of the listing itself.
            found[str(path.readlink())] = int(path.name)
    return {name: number for name, number in found.items() if name.startswith("pipe:")}


def saying(content: bytes) -> Callable[[Say], None]:
    """What a child does that somebody else has taken over: it writes into its pipe as it likes."""
    before = pipes()

    def act(_: Say) -> None:
        (number,) = (number for name, number in pipes().items() if name not in before)
        os.write(number, content)

    return act


@pytest.mark.parametrize(
    "content",
    [
        b"no json\n",
        b"[]\n",
        b"{}\n",
        b'{"refused": "x"}\n',
        b'{"refused": ["disk-full", 7]}\n',
        b'{"refused": ["packages", "a code of another verb"]}\n',
        b"[" * 100_000 + b"\n",
        json.dumps({"refused": ["disk-full"]}).encode() + b"\n",
    ],
    ids=range(8),
)
def test_what_is_no_answer_of_ours_breaks_the_access_and_not_the_agent(content: bytes) -> None:
    with pytest.raises(RefusedError, match="the access has failed") as refused:
        answer(saying(content))
    assert refused.value.code == "datastore-broken"


def test_progress_is_one_line_of_text(capfd: pytest.CaptureFixture[str]) -> None:
    answer(lambda say: say("a\x1b[2J\nb"))
    assert capfd.readouterr().err == "a[2Jb\n"


def test_a_child_that_works_until_its_limit_is_slow_and_not_away() -> None:
    def work(say: Say) -> None:
        while True:
            say("")

    with pytest.raises(RefusedError, match="what is there already stays") as refused:
        answer(work, limit_s=0.3, slow="datastore-slow")
    assert refused.value.code == "datastore-slow"
    with pytest.raises(RefusedError, match="cannot be reached") as refused:
        answer(lambda _: signal.pause(), limit_s=0.3, slow="datastore-slow")
    assert refused.value.code == "datastore-away"
