"""Train a small network on scikit-learn's handwritten digits.

Reads EPOCHS (20). Prints loss and accuracy per epoch; leaves `model.joblib`, `curve.png` and
`metrics.json` in $BASELOAD_OUTPUT (here, where there is none).
"""

import json
import os
import time
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

BATCH = 64


def main() -> None:
    """Train, report each epoch, and keep the model, the curve and the numbers."""
    epochs = int(os.environ.get("EPOCHS", "20"))
    output = Path(os.environ.get("BASELOAD_OUTPUT", "."))
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.data / 16.0, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    print(f"{len(train_x)} digits to learn from, {len(test_x)} to be tested on", flush=True)
    model = MLPClassifier(hidden_layer_sizes=(64,), learning_rate_init=0.003, random_state=0)
    order = np.random.default_rng(0)
    history = []
    for epoch in range(1, epochs + 1):
        started = time.monotonic()
        for batch in np.array_split(order.permutation(len(train_x)), len(train_x) // BATCH):
            model.partial_fit(train_x[batch], train_y[batch], classes=np.arange(10))
        loss = log_loss(test_y, model.predict_proba(test_x))
        accuracy = accuracy_score(test_y, model.predict(test_x))
        history.append({"epoch": epoch, "loss": loss, "accuracy": accuracy})
        seconds = time.monotonic() - started
        print(
            f"epoch {epoch:>2}/{epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  {seconds:.2f} s",
            flush=True,
        )
    output.mkdir(parents=True, exist_ok=True)
    joblib.dump(model, output / "model.joblib")
    (output / "metrics.json").write_text(json.dumps(history, indent=1))
    draw(history, output / "curve.png")
    print(f"model.joblib, curve.png and metrics.json are in {output}", flush=True)


def draw(history: list[dict[str, float]], path: Path) -> None:
    """Loss and accuracy over the epochs."""
    figure, left = plt.subplots(figsize=(7, 4))
    epochs = [entry["epoch"] for entry in history]
    left.plot(epochs, [entry["loss"] for entry in history], color="tab:red", label="loss")
    left.set_xlabel("epoch")
    left.set_ylabel("loss", color="tab:red")
    right = left.twinx()
    right.plot(epochs, [entry["accuracy"] for entry in history], color="tab:blue")
    right.set_ylabel("accuracy", color="tab:blue")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
