"""The way to a node, or the node, is lost in the middle: unreachable is not dead.

Being sure that a node is away takes half a minute, so one story loses seven machines at once; each
test then looks at one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import asyncssh
import pytest

from tests.e2e.conftest import CPU_CORE_HOUR_MICROCREDITS, UNREACHABLE_LIMIT_S
from tests.e2e.platform import Platform, Resource, Site
from tests.lab.machine import Kind, Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

AWAY_LIMIT_S = 75.0
"""The watch is silent for 12 s, then two looks of 10 s each fail."""
LONG, SHORT = 60, 12
COUNTING = "for n in $(seq 1 {0}); do echo $n; sleep 1; done; hostname > $BASELOAD_OUTPUT/host"
COMMANDS = {
    "false-key": "sleep 5091",
    "cut-long": COUNTING.format(LONG),
    "cut-short": COUNTING.format(SHORT),
    "stays-away": "sleep 5061",
    "no-power": "echo before; sleep 5071",
    "canceled": "sleep 5081",
    "notebook": (
        "cat mine $BASELOAD_STATE/mine $BASELOAD_OUTPUT/mine; "
        "for folder in . $BASELOAD_STATE $BASELOAD_OUTPUT; do echo kept > $folder/mine; done; "
        "echo begun; sleep 5101"
    ),
}
KINDS: dict[str, Kind] = {"no-power": "systemd", "notebook": "systemd"}
CHANGES: dict[str, Resource] = {"notebook": {"type": "notebook", "port": 8888}}


@dataclass
class Lost:
    """One machine of the story, alone in its region, and what was seen of it."""

    machine: Machine
    site: Site
    node: str
    job: str
    own_key: asyncssh.SSHKey
    unreachable: Resource = field(default_factory=dict)
    offline: Resource = field(default_factory=dict)
    log_while_away: str = ""


@pytest.fixture(scope="module")
def story(
    lab: Lab, platform: Platform, make_site: Callable[..., Site]
) -> Iterator[dict[str, Lost]]:
    """Seven machines are at work, are lost, and all but one come back."""
    sites = {name: make_site() for name in COMMANDS}
    nodes = {name: hand_over(lab.add(name, KINDS.get(name, "sshd")), sites[name]) for name in sites}
    for name, node in nodes.items():
        platform.until_status(node, "maintenance", limit_s=150)
        sites[name].activate(node)
    told = {
        name: Lost(
            lab.machines[name],
            sites[name],
            nodes[name],
            platform.job(command, sites[name].region_id, **CHANGES.get(name, {})),
            lab.machines[name].key,
        )
        for name, command in COMMANDS.items()
    }
    for lost in told.values():
        platform.until_status(lost.job, "running")
    no_power = told["no-power"].job
    wait_until(lambda: platform.log(no_power) == "before\n", "the line is stored")
    notebook = told["notebook"].job
    wait_until(lambda: "begun" in platform.log(notebook), "it has written its files")
    lose(told)
    see(platform, told)
    platform.post(f"{told['canceled'].job}/cancel")
    for name in ("cut-long", "cut-short", "canceled"):
        told[name].machine.heal_network()
    for name in KINDS:
        told[name].machine.boot()
    yield told
    for name in told:
        lab.remove(name)


def hand_over(machine: Machine, site: Site) -> str:
    site.announce(machine)
    return site.add(machine)


def lose(story: dict[str, Lost]) -> None:
    for name in ("cut-long", "cut-short", "stays-away", "canceled"):
        story[name].machine.cut_network()
    for name in KINDS:
        story[name].machine.power_cut()
    story["false-key"].machine.change_host_key()
    story["false-key"].machine.restart_sshd(drop_sessions=True)


def see(platform: Platform, story: dict[str, Lost]) -> None:
    """What the platform says of each while it is away."""
    for lost in story.values():
        lost.unreachable = platform.until_status(lost.job, "unreachable", limit_s=AWAY_LIMIT_S)
        lost.offline = platform.until_status(lost.node, "offline")
        lost.log_while_away = platform.log(lost.job)


def test_a_job_goes_on_while_its_node_is_away_and_ends_as_if_nothing_was(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["cut-long"]
    assert lost.node.rsplit("/", 1)[1] in lost.unreachable["status_reason"]
    finished = platform.until_status(lost.job, "finished", limit_s=LONG + 30)
    assert platform.log(lost.job) == "".join(f"{n}\n" for n in range(1, LONG + 1))
    assert [text.strip() for text in platform.output(lost.job).values()] == [b"cut-long"]
    assert finished["workers"][0]["exit_code"] == 0


def test_a_command_that_ended_while_its_node_was_away_is_billed_to_its_end(
    platform: Platform, story: dict[str, Lost]
) -> None:
    finished = platform.until_status(story["cut-short"].job, "finished", limit_s=150)
    per_second = CPU_CORE_HOUR_MICROCREDITS // 3600
    charged = finished["charged_microcredits"]
    assert SHORT * per_second <= charged <= (SHORT + 2) * per_second


def test_a_job_cancelled_while_its_node_is_away_leaves_nothing_once_it_is_back(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["canceled"]
    platform.until_status(lost.job, "canceled", limit_s=150)
    assert "sleep 5081" not in lost.machine.command_lines()


def test_a_node_that_lost_power_comes_back_by_itself_and_its_job_says_what_happened(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["no-power"]
    assert lost.log_while_away == "before\n", "the log of a machine that is away can be read"
    platform.until_status(lost.node, "active", limit_s=150)
    failed = platform.until_status(lost.job, "failed", limit_s=150)
    assert "restarted" in failed["status_reason"]


def test_a_notebook_whose_machine_lost_power_goes_on_by_itself_with_its_files(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["notebook"]
    platform.until(
        lost.job,
        lambda found: found["status"] == "running" and found["attempt"] == 2,
        "it runs again",
    )
    wait_until(lambda: platform.log(lost.job).count("begun") == 2, "its command has begun again")
    assert platform.log(lost.job).count("kept\n") == 3, "all its files were there again"
    assert platform.events(lost.job).count("job.running") == 2
    platform.post(f"{lost.job}/cancel")
    platform.until_status(lost.job, "canceled")
    assert platform.output(lost.job) == {"mine": b"kept\n"}


def test_a_job_whose_node_stays_away_fails_after_its_limit_and_leaves_what_it_held_to_the_node(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["stays-away"]
    failed = platform.until_status(lost.job, "failed", limit_s=UNREACHABLE_LIMIT_S + 60)
    assert "not reachable" in failed["status_reason"]
    assert "sleep 5061" in lost.machine.command_lines(), "it was healthy all the time"
    (left,) = platform.get(lost.node)["leaving_allocations"]
    assert left["job_id"] == lost.job.rsplit("/", 1)[1]
    lost.machine.heal_network()
    platform.until_status(lost.node, "active", limit_s=150)
    wait_until(lambda: "sleep 5061" not in lost.machine.command_lines(), "the stray is ended", 150)
    wait_until(lambda: not platform.get(lost.node)["leaving_allocations"], "it is freed", 150)
    again = platform.job("true", lost.site.region_id)
    platform.until_status(again, "finished", limit_s=150)


def test_a_node_that_shows_another_key_is_offline_until_its_own_is_back(
    platform: Platform, story: dict[str, Lost]
) -> None:
    lost = story["false-key"]
    shown = lost.machine.minion_id
    assert shown not in lost.offline["status_reason"], "nobody is told what was found"
    assert lost.offline["minion_id"] in lost.offline["status_reason"]
    assert "node.host-key-refused" in platform.events(lost.node)
    lost.machine.use_host_key(lost.own_key)
    lost.site.announce(lost.machine)
    platform.until_status(lost.node, "active", limit_s=150)
