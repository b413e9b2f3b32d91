"""Fits a line to noisy points with one learning rate, and writes how well it fits."""

import json
import os
from pathlib import Path

rate = float(os.environ["LEARNING_RATE"])
points = [(x / 50, 3 * x / 50 + 1 + (0.1 if x % 2 else -0.1)) for x in range(-50, 50)]

slope = shift = 0.0
for _ in range(500):
    errors = [(x, slope * x + shift - y) for x, y in points]
    slope -= rate * sum(2 * x * error for x, error in errors) / len(points)
    shift -= rate * sum(2 * error for _, error in errors) / len(points)

loss = sum((slope * x + shift - y) ** 2 for x, y in points) / len(points)
print(f"learning rate {rate:g}: y = {slope:.2f} x + {shift:.2f}, loss {loss:.4f}")
result = {"learning_rate": rate, "slope": slope, "shift": shift, "loss": loss}
(Path(os.environ["BASELOAD_OUTPUT"]) / "result.json").write_text(json.dumps(result) + "\n")
