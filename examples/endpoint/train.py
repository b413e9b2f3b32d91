"""Trains the model that `serve.py` serves, on images that scikit-learn brings along."""

import joblib
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

pixels, digits = load_digits(return_X_y=True)
model = LogisticRegression(max_iter=1000).fit(pixels / 16, digits)
joblib.dump(model, "model.joblib")
print(f"accuracy on what it has seen: {model.score(pixels / 16, digits):.3f}")
