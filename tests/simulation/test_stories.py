"""Stories that seeds have told, each of a defect that was mended."""

from dataclasses import replace

from tests.simulation.plan import Act, At
from tests.simulation.simulation import play
from tests.simulation.test_coverage import PLAN


def test_a_node_that_moved_while_its_site_was_away_takes_jobs_again() -> None:
    """Its machine has announced itself once, and the first try at the new address was refused."""
    acts = (
        Act(At(60), "world", "site_away", "region/0", 1800),
        Act(At(300), "world", "machine_moves", "machine/0"),
    )
    life = play(replace(PLAN, acts=acts, hours=0.6))
    [node] = life.rows.nodes()
    assert (node.status, node.status_reason) == ("active", None)
    assert node.host != "10.0.0.1"
    assert life.violations == []
