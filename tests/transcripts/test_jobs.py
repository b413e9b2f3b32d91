"""What whole jobs do, line by line, as `jobs/told/` has it of each story.

`python -m tests.transcripts.test_jobs` writes these files anew: read what has changed.
"""

from pathlib import Path

import pytest

from tests.transcripts.jobs import endings, losses, runs
from tests.transcripts.whole import stories_of, write

TOLD = Path(__file__).parent / "jobs" / "told"
STORIES = stories_of(endings, losses, runs)


@pytest.mark.parametrize("name", STORIES)
def test_a_job_does_what_is_told_of_it(name: str) -> None:
    assert STORIES[name]() == (TOLD / f"{name}.txt").read_text().splitlines()


def test_no_story_is_told_of_which_there_is_none() -> None:
    assert {path.stem for path in TOLD.iterdir()} == STORIES.keys()


if __name__ == "__main__":
    write(TOLD, STORIES)
