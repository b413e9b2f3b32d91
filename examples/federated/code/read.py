"""Read each mass of $BASELOAD_INPUT/patients.csv with the model of $BASELOAD_MODEL.

Leaves `reads.csv` in $BASELOAD_OUTPUT: the patient, and how likely the mass is malignant.
EVERY_S seconds pass between two patients, 0 by default.
"""

import csv
import json
import math
import os
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Read one patient after the other; what was read is in the output at once."""
    model = json.loads((Path(os.environ["BASELOAD_MODEL"]) / "cells.json").read_text())
    patients = Path(os.environ["BASELOAD_INPUT"]) / "patients.csv"
    reads = Path(os.environ["BASELOAD_OUTPUT"]) / "reads.csv"
    with patients.open(newline="") as given, reads.open("w", buffering=1) as found:
        found.write("patient,malignant\n")
        for patient in csv.DictReader(given):
            found.write(f"{patient['patient']},{malignant(model, patient):.3f}\n")
            print(f"read {patient['patient']}", flush=True)
            time.sleep(float(os.environ.get("EVERY_S", "0")))


def malignant(model: dict[str, Any], patient: dict[str, str]) -> float:
    """How likely the mass of a patient is malignant, 0 to 1."""
    logit = model["bias"]
    for name, mean, spread, weight in zip(
        model["columns"], model["means"], model["spreads"], model["weights"], strict=True
    ):
        logit += weight * (float(patient[name]) - mean) / spread
    return 1 / (1 + math.exp(logit))


if __name__ == "__main__":
    main()
