"""One step in a process of its own: `python -m tests.bench.step NAME` ends with its rows as JSON.

Clients and worker threads of the engine outlive what a step did with them; here they end with it,
and the next step is measured as if it were alone.
"""

import importlib
import json
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict

from tests.bench.measure import Row
from tests.temporal_server import CHECKOUT
from workers.process import leave

END_S = 60.0


def measured(name: str) -> list[Row]:
    """The rows of one step. Raises: RuntimeError, when it has failed; its errors are on stderr."""
    command = [sys.executable, "-m", "tests.bench.step", name]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate()
        except (KeyboardInterrupt, SystemExit):
            process.terminate()
            process.wait(END_S)
            raise
    if process.returncode:
        raise RuntimeError(f"step {name}: exit status {process.returncode}")
    *_, rows = output.splitlines()  # what it has logged comes before
    return [Row(**row) for row in json.loads(rows)]


def main() -> None:
    """Measure the step that is named."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave nothing behind
    try:
        rows: list[Row] = importlib.import_module(f"tests.bench.{sys.argv[1]}").rows()
        sys.stdout.write(f"\n{json.dumps([asdict(row) for row in rows])}\n")
    except BaseException:  # noqa: BLE001 - an ordinary end would wait for the engine's threads
        traceback.print_exc()
        leave(1)
    leave(0)


if __name__ == "__main__":
    main()
