"""`make demo-federated`: a model and its data, of two parties, on machines of the lab."""

from __future__ import annotations

import argparse
import sys

from tests.demo_data.__main__ import tell_all
from tests.demo_federated.story import play
from workers.process import leave

HOME_NAME = "demo-federated"
INTRODUCTION = """\
T W O   P A R T I E S
A hospital has patients and machines, a maker has a model, and neither gives away what it has. Here
the maker's model reads the hospital's patients on a machine of the hospital: what each of both must
allow is tried without it first, and what the model's job must not reach is tried from inside. Then
the hospital withdraws its consent while a second job runs, and both statements are printed. Each
line with a ✓ was checked on the world: files on the share, the node's disk, what the API answers.
The machine is a namespace of this one, with its own SSH server, network card and disk; the
platform, the NFS server and the model (examples/federated) are real."""


def main(arguments: list[str]) -> int:
    """Tell the whole story; 0 only when all of it was seen."""
    argparse.ArgumentParser(prog="python -m tests.demo_federated", description=__doc__).parse_args(
        arguments
    )
    return tell_all(INTRODUCTION, HOME_NAME, play)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
