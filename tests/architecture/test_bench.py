"""What the bench simulates is what the product asks for; no other test runs the bench."""

from activities.agent.__main__ import ANSWERS
from tests.bench.ssh_double import Machine


def test_a_simulated_machine_answers_only_verbs_of_the_agent() -> None:
    verbs = {name.removeprefix("do_") for name in vars(Machine) if name.startswith("do_")}
    assert verbs <= set(ANSWERS), verbs - set(ANSWERS)
