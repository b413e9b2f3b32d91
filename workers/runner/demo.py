"""`make demo`: from nothing to a finished, billed job on this machine, with a line a step."""

from pathlib import Path

from workers.runner.commands import Commands, PublicApi, Resource
from workers.runner.lifecycle import StackError, Tell, attached, bring_up
from workers.runner.local_node import join_home, shortened
from workers.runner.narration import Story
from workers.runner.onboarding import show_onboarding
from workers.runner.programs import default_stack, started_settings
from workers.runner.settings import RunnerSettings

JOB_FILE = "examples/digits/job.yaml"
JOB_NAME = "digits"


def run_demo(settings: RunnerSettings, tell: Tell) -> None:
    """Run the whole demonstration. Raises: StackError, at the first step that fails."""
    story = Story(tell)
    with story.step("Start Temporal, SSH server, API and workers"):
        if not bring_up(settings.home.absolute(), lambda: default_stack(settings), tell):
            tell("they are running already")
    settings = started_settings(settings)
    with attached(settings.home.absolute(), tell):
        node, job = _from_node_to_bill(settings, tell, story)
    story.sum_up()
    _show_addresses(settings, node, job, tell)


def _from_node_to_bill(
    settings: RunnerSettings, tell: Tell, story: Story
) -> tuple[Resource, Resource]:
    api = PublicApi(settings)
    commands = Commands(settings, tell, shown=True)
    node = join_home(settings, commands, tell, story.step)
    with story.step("What onboarding found, and each status of the node"):
        show_onboarding(api, str(node["id"]), tell)
    job = _train(api, commands, story)
    with story.step("Fetch the output"):
        target = settings.home.absolute() / "demo" / str(job["id"])
        commands.baseload("output", str(job["id"]), "--to", shortened(target))
        _list_files(target, tell)
    with story.step("Where it ran, what happened, what it cost"):
        for command in ("placement", "events", "charges"):
            commands.baseload(command, str(job["id"]))
        commands.baseload("bill")
    return node, job


def _train(api: PublicApi, commands: Commands, story: Story) -> Resource:
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


def _show_addresses(settings: RunnerSettings, node: Resource, job: Resource, tell: Tell) -> None:
    """Show where a person can see the running stack."""
    namespace = f"{settings.ui_url}/namespaces/default/workflows"
    tell(
        f"\nThe stack keeps running. Look around:\n"
        f"  Temporal UI   {settings.ui_url}\n"
        f"    this job    {namespace}/{_quoted(job['workflow_id'])}\n"
        f"    this node   {namespace}/{_quoted(node['workflow_id'])}\n"
        f"  guide         {settings.api_url}/guide (begin with: Your first own job)\n"
        f"  API           {settings.api_url}/docs\n"
        f"  command       .venv/bin/baseload --help\n"
        f"\n`make down` ends all processes."
    )


def _list_files(folder: Path, tell: Tell) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            tell(f"  {path.stat().st_size:>9,} bytes  {path.relative_to(folder)}")


def _quoted(workflow_id: str) -> str:
    return workflow_id.replace("/", "%2F")
