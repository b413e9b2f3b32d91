"""Fit a line to points that are the same on every machine; log each epoch, leave the model."""

import json
import os
import random
import sys
from pathlib import Path

chance = random.Random(4711)
slope = offset = 0.0
output = Path(os.environ["BASELOAD_OUTPUT"])
for epoch in range(int(os.environ["EPOCHS"])):
    for _ in range(100):
        x = chance.uniform(-1, 1)
        error = slope * x + offset - (3 * x - 1)
        slope, offset = slope - 0.1 * error * x, offset - 0.1 * error
    sys.stdout.write(f"epoch {epoch}: slope {slope:.9f}, offset {offset:.9f}\n")
(output / "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
(output / "weights.bin").write_bytes(chance.randbytes(100_000))
