"""How much the GPUs of this machine work, as their driver says."""

from __future__ import annotations

import subprocess
import time

from .inspection import nvidia_smi

ANSWER_S = 30.0


class GpuWork:
    """Asks the driver how much each GPU works, and never waits for it."""

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
