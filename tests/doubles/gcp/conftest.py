from tests.doubles.gcp.fixtures import contained, gcp, make_gcp

__all__ = ["contained", "gcp", "make_gcp"]
