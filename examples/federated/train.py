"""Fit the model of this example: a logistic regression, with Python alone.

    python3 train.py measurements.csv model/cells.json

measurements.csv: a line of column names, then for each mass its measurements and whether it is
benign (1) or malignant (0), as patients.csv without its first column.
"""

import csv
import json
import math
import sys
from pathlib import Path

ROUNDS = 400
RATE = 0.5


def main(source: str, target: str) -> None:
    """Fit a weight for each measurement, by gradient descent on the whole file."""
    with Path(source).open(newline="") as file:
        names, *lines = csv.reader(file)
    rows = [[float(cell) for cell in line[:-1]] for line in lines]
    labels = [int(line[-1]) for line in lines]
    columns = list(zip(*rows, strict=True))
    means = [sum(each) / len(each) for each in columns]
    spreads = [
        math.sqrt(sum((value - mean) ** 2 for value in each) / len(each))
        for each, mean in zip(columns, means, strict=True)
    ]
    scaled = [
        [(value - mean) / spread for value, mean, spread in zip(row, means, spreads, strict=True)]
        for row in rows
    ]
    weights, bias = [0.0] * len(means), 0.0
    for _ in range(ROUNDS):
        errors = [
            chance(sum(map(float.__mul__, weights, row)) + bias) - label
            for row, label in zip(scaled, labels, strict=True)
        ]
        slopes = [
            sum(map(float.__mul__, errors, each)) / len(errors)
            for each in zip(*scaled, strict=True)
        ]
        weights = [weight - RATE * slope for weight, slope in zip(weights, slopes, strict=True)]
        bias -= RATE * sum(errors) / len(errors)
    model = {
        "columns": names[:-1],
        "means": [round(each, 6) for each in means],
        "spreads": [round(each, 6) for each in spreads],
        "weights": [round(each, 6) for each in weights],
        "bias": round(bias, 6),
    }
    Path(target).write_text(json.dumps(model, indent=1) + "\n")


def chance(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, logit))))


if __name__ == "__main__":
    main(*sys.argv[1:3])
