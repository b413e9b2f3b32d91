from tests.doubles.gcp.fixtures import gcp, make_gcp

__all__ = ["gcp", "make_gcp"]
