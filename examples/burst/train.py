"""Fit a line to noisy points by gradient descent, an epoch at a time, with nothing but Python.

Reads EPOCHS (40) and EPOCH_S (1), the seconds of one. Keeps where it is in $BASELOAD_STATE and
goes on from there; leaves `line.json` in $BASELOAD_OUTPUT, which is the same on every machine.
"""

import json
import os
import random
import time
from pathlib import Path

SLOPE, OFFSET = 3.0, -1.0
RATE = 0.2


def main() -> None:
    epochs = int(os.environ.get("EPOCHS", "40"))
    state = Path(os.environ.get("BASELOAD_STATE", ".")) / "line.json"
    output = Path(os.environ.get("BASELOAD_OUTPUT", "."))
    line: dict[str, float] = {"epoch": 0, "slope": 0.0, "offset": 0.0}
    if state.exists():
        line = json.loads(state.read_text())
        print(f"goes on after epoch {line['epoch']}", flush=True)
    while line["epoch"] < epochs:
        line = after_epoch(line)
        resource = state.with_suffix(".part")
        resource.write_text(json.dumps(line))
        resource.replace(state)
        fitted = (
            f"slope {line['slope']:.3f} (of {SLOPE}), offset {line['offset']:.3f} (of {OFFSET})"
        )
        print(f"epoch {line['epoch']:>2}/{epochs}  {fitted}", flush=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "line.json").write_text(json.dumps(line))


def after_epoch(line: dict[str, float]) -> dict[str, float]:
    """The line after one pass over points that are the same each time."""
    chance = random.Random(4711)  # noqa: S311 - points to fit, and no secret
    slope, offset = line["slope"], line["offset"]
    for _ in range(5):
        x = chance.uniform(-1, 1)
        error = slope * x + offset - (SLOPE * x + OFFSET + chance.gauss(0, 0.05))
        slope, offset = slope - RATE * error * x, offset - RATE * error
    time.sleep(float(os.environ.get("EPOCH_S", "1")))
    return {"epoch": line["epoch"] + 1, "slope": slope, "offset": offset}


if __name__ == "__main__":
    main()
