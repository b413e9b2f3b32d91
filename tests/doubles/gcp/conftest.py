from tests.doubles.gcp.fixtures import contained, gcp, make_gcp
from tests.lab.fixtures import lab

__all__ = ["contained", "gcp", "lab", "make_gcp"]
