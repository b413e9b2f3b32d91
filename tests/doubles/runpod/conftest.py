from tests.doubles.runpod.fixtures import make_runpod, runpod

__all__ = ["make_runpod", "runpod"]
