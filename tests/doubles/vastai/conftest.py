from tests.doubles.vastai.fixtures import make_vastai, vastai

__all__ = ["make_vastai", "vastai"]
