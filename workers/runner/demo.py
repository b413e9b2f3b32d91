"""`make demo`: from nothing to a finished, billed job on this machine, told as it happens."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.runner.commands import Commands, PublicApi, Resource
from workers.runner.home import join_home, shortened
from workers.runner.lifecycle import StackError, Tell, attached, bring_up
from workers.runner.programs import default_stack, started_settings
from workers.runner.settings import RunnerSettings

JOB_FILE = "examples/digits/job.yaml"
JOB_NAME = "digits"


def run_demo(settings: RunnerSettings, tell: Tell) -> None:
    """Tell the whole story. Raises: StackError, at the first step that fails."""
    story = _Story(tell)
    with story.step("Start Temporal, SSH server, API and workers"):
        if not bring_up(settings.home.absolute(), lambda: default_stack(settings), tell):
            tell("they are running already")
    settings = started_settings(settings)
    with attached(settings.home.absolute(), tell):
        node, job = _from_node_to_bill(settings, tell, story)
    story.end(settings, node, job)


def _from_node_to_bill(
    settings: RunnerSettings, tell: Tell, story: "_Story"
) -> tuple[Resource, Resource]:
    api = PublicApi(settings)
    commands = Commands(settings, tell, shown=True)
    node = join_home(settings, commands, tell, story.step)
    job = _train(api, commands, story)
    with story.step("Fetch the output"):
        target = settings.home.absolute() / "demo" / str(job["id"])
        commands.baseload("output", str(job["id"]), "--to", shortened(target))
        _list_files(target, tell)
    with story.step("Where it ran, what happened, what it cost"):
        for sight in ("placement", "events", "charges"):
            commands.baseload(sight, str(job["id"]))
        commands.baseload("bill")
    return node, job


def _train(api: PublicApi, commands: Commands, story: "_Story") -> Resource:
    with story.step("Run a real training job"):
        commands.baseload("submit", JOB_FILE, "--follow")
        job = api.live("jobs", name=JOB_NAME)
        if job is None:
            raise StackError(f"no job {JOB_NAME} right after it was submitted")
        job = api.wait(
            f"/v1/jobs/{job['id']}",
            frozenset({"finished", "canceled"}),
            120,
            lambda status: story.tell(f"job {JOB_NAME}: {status}"),
        )
    if job["status"] != "finished":
        raise StackError(f"{job['id']} is {job['status']}: {job['status_reason']}")
    return job


class _Story:
    """The steps, each with a heading and the seconds that it took."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.tell(f"\n{_bold(f'── {name} ' + '─' * max(2, 76 - len(name)))}")
        started = time.monotonic()
        yield
        self._steps.append((name, time.monotonic() - started))

    def end(self, settings: RunnerSettings, node: Resource, job: Resource) -> None:
        """The table of steps, and where to look now."""
        self.tell(f"\n{_bold('step'.ljust(56) + 'seconds')}")
        for name, seconds in (*self._steps, ("all", sum(took for _, took in self._steps))):
            self.tell(f"{name:<56}{seconds:>7.1f}")
        namespace = f"{settings.ui_url}/namespaces/default/workflows"
        self.tell(
            f"\nIt stays up. Look around:\n"
            f"  Temporal UI   {settings.ui_url}\n"
            f"    this job    {namespace}/{_quoted(job['workflow_id'])}\n"
            f"    this node   {namespace}/{_quoted(node['workflow_id'])}\n"
            f"  API           {settings.api_url}/docs\n"
            f"  command       .venv/bin/baseload --help\n"
            f"\n`make down` ends all of it."
        )


def _list_files(folder: Path, tell: Tell) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            tell(f"  {path.stat().st_size:>9,} bytes  {path.relative_to(folder)}")


def _quoted(workflow_id: str) -> str:
    return workflow_id.replace("/", "%2F")


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text
