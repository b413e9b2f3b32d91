"""What commands do, and what is done to those who look after them."""

from __future__ import annotations

import json

from tests.chaos.campaign_stack import aside
from tests.chaos.job import Script, counting, one_line, short_lines
from tests.chaos.kinds import Missed, Scene, kind
from tests.chaos.leftovers import RUNS, beats
from tests.chaos.machines import jobs_end


@kind("machine", 5)
async def supervisor_killed(scene: Scene) -> None:
    """Its job fails and says so; what it had started is ended; its last beat is billed."""
    room, place = scene.room, scene.place
    job = await scene.a_job(90, "running")
    if job.row["type"] == "notebook":
        raise Missed("a job that may be started again: another attempt would be judged by this one")
    try:  # Only the region's site knows the tag in the name of a run.
        (folder,) = (room.disk(place) / RUNS).glob(f"{job.id}-0-1-*")
        pid = json.loads((folder / "process.json").read_text())["supervisor_pid"]
    except (FileNotFoundError, ValueError) as over:
        raise Missed("the command has ended meanwhile") from over
    with scene.touching([job]):
        job.may("failed")
        await aside(lambda: place.machine.run("kill", "-9", str(pid), check=False))
        lost = beats(room.disk(place)).get(folder.name)
        if lost is not None:
            job.breaks_off(lost)


async def runs_through(scene: Scene, script: Script) -> None:
    """A job of its own does that, and must end as any other."""
    job = await scene.room.submit(scene.place, script)
    with scene.touching([job]):
        await jobs_end(scene, [job], 300)


@kind("machine", 2)
async def tree_that_hides(scene: Scene) -> None:
    """Its children leave its session, lose their parents, shut their ears, and are ended."""
    hide = (
        "for n in 1 2 3; do setsid sh -c \"trap '' TERM HUP INT; "
        '(env -i setsid sleep 7777 &) ; exec sleep 7777" > /dev/null 2>&1 & done; '
    )
    await runs_through(scene, counting(4, 0.3, hide))


@kind("machine", 2)
async def short_lines_by_the_thousand(scene: Scene) -> None:
    await runs_through(scene, short_lines(200_000))


@kind("machine", 2)
async def ten_megabytes_without_newline(scene: Scene) -> None:
    await runs_through(scene, one_line(10 << 20))


@kind("machine")
async def hundred_megabytes_in_a_second(scene: Scene) -> None:
    await runs_through(scene, one_line(100 << 20))
