"""`python -m tests.doubles.vastai`: the double as a process."""

from tests.doubles.rented.process import run
from tests.doubles.vastai.double import VastDouble

if __name__ == "__main__":
    run(VastDouble, "vastai")
