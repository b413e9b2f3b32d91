"""What whole nodes do, line by line, as `nodes/told/` has it of each story.

`python -m tests.transcripts.test_nodes` writes these files anew: read what has changed.
"""

from pathlib import Path

import pytest

from tests.transcripts.nodes import on_leases, outages, own, runs
from tests.transcripts.whole import stories_of, write

TOLD = Path(__file__).parent / "nodes" / "told"
STORIES = stories_of(own, outages, on_leases, runs)


@pytest.mark.parametrize("name", STORIES)
def test_a_node_does_what_is_told_of_it(name: str) -> None:
    assert STORIES[name]() == (TOLD / f"{name}.txt").read_text().splitlines()


def test_no_story_is_told_of_which_there_is_none() -> None:
    assert {path.stem for path in TOLD.iterdir()} == STORIES.keys()


if __name__ == "__main__":
    write(TOLD, STORIES)
