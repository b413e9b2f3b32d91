"""The utilisation of this machine's GPUs, as their driver reports it."""

from __future__ import annotations

import subprocess
import time

from .inspection import nvidia_smi

ANSWER_S = 30.0


class GpuWork:
    """The poller of the GPUs' utilisation, which never waits for the driver."""

    def __init__(self) -> None:
        self._asked: subprocess.Popen[bytes] | None = None
        self._asked_s = 0.0

    def percent(self) -> dict[str, int] | None:
        """Percent by uuid, of those that the driver tells; None: it has not answered yet."""
        if self._asked is None:
            return self._ask()
        if self._asked.poll() is not None:
            return self._answer(self._asked)
        if time.monotonic() < self._asked_s + ANSWER_S:
            return None
        # It may sleep where no signal reaches it: then it is never asked beside it.
        self._asked.kill()
        return {}

    def _ask(self) -> dict[str, int] | None:
        query = [
            nvidia_smi() or "nvidia-smi",
            "--query-gpu=uuid,utilization.gpu",
            "--format=csv,noheader,nounits",
        ]
        try:
            self._asked = subprocess.Popen(
                query,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return {}
        self._asked_s = time.monotonic()
        return None

    def _answer(self, asked: subprocess.Popen[bytes]) -> dict[str, int]:
        self._asked = None
        text, _ = asked.communicate()
        if asked.returncode != 0:
            return {}
        found = {}
        for line in text.decode(errors="replace").splitlines():
            uuid, _, percent = line.partition(",")
            if percent.strip().isdigit():  # Not `[N/A]` and its like.
                found[uuid.strip()] = int(percent)
        return found
