from tests.doubles.ngrok.fixtures import ngrok

__all__ = ["ngrok"]
