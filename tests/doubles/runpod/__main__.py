"""`python -m tests.doubles.runpod`: the double as a process."""

from tests.doubles.rented.process import run
from tests.doubles.runpod.double import RunPodDouble

if __name__ == "__main__":
    run(RunPodDouble, "runpod")
