"""Serves the model: POST {"pixels": [64 numbers from 0 to 16]} to /predict."""

import os

import joblib
import litserve


class Digits(litserve.LitAPI):
    def setup(self, device):
        self.model = joblib.load("model.joblib")

    def decode_request(self, request):
        return [[pixel / 16 for pixel in request["pixels"]]]

    def predict(self, images):
        return self.model.predict(images)

    def encode_response(self, digits):
        return {"digit": int(digits[0])}


if __name__ == "__main__":
    server = litserve.LitServer(Digits(), accelerator="cpu")
    server.run(host="127.0.0.1", port=int(os.environ["BASELOAD_PORT"]), generate_client_file=False)
