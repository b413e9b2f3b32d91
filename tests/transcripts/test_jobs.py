"""What whole jobs do, line by line, as `jobs/told/` has it of each story.

`python -m tests.transcripts.test_jobs` writes these files anew: read what has changed.
"""

from pathlib import Path

import pytest

from tests.transcripts.jobs import endings, losses, runs

TOLD = Path(__file__).parent / "jobs" / "told"
STORIES = {
    name: tells
    for module in (endings, losses, runs)
    for name, tells in vars(module).items()
    if getattr(tells, "__module__", "") == module.__name__
}


@pytest.mark.parametrize("name", STORIES)
def test_a_job_does_what_is_told_of_it(name: str) -> None:
    assert STORIES[name]() == (TOLD / f"{name}.txt").read_text().splitlines()


def test_no_story_is_told_of_which_there_is_none() -> None:
    assert {path.stem for path in TOLD.iterdir()} == STORIES.keys()


def write() -> None:
    """Write what each story tells now."""
    TOLD.mkdir(exist_ok=True)
    for name, tells in STORIES.items():
        (TOLD / f"{name}.txt").write_text("\n".join([*tells(), ""]))


if __name__ == "__main__":
    write()
