"""Trials of what this machine can do, made in a process of their own, which takes all with it."""

from __future__ import annotations

import os
from collections.abc import Callable


def failure_of(attempt: Callable[[], None]) -> str | None:
    """Why an attempt fails, in the words of what it raises; None: it does not."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt has failed
            os.write(writer, (str(error) or repr(error)).encode(errors="replace"))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        words = file.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return words or None
