"""What the bench simulates is what the product asks for; no other test runs the bench."""

import re
from inspect import getsource

from activities.agent.__main__ import ANSWERS
from activities.site import devices
from tests.bench.ssh_double import Machine


def test_a_simulated_machine_answers_only_verbs_of_the_agent() -> None:
    verbs = {name.removeprefix("do_") for name in vars(Machine) if name.startswith("do_")}
    assert verbs <= set(ANSWERS), verbs - set(ANSWERS)


def test_a_simulated_device_answers_each_verb_that_devices_are_asked() -> None:
    asked = set(re.findall(r'"(\w+_device|device_\w+)"', getsource(devices)))
    streams = {"watch_device"}
    stops = {"stop_device"}  # Nothing of the bench stops an inference.
    assert {f"do_{verb}" for verb in asked - streams - stops} <= set(vars(Machine))
