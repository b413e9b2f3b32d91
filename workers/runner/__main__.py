"""`python -m workers.runner up | down | status | demo`."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from activities.agent.errors import RefusedError
from activities.agent.host import network_wall
from workers.runner.commands import Commands, PublicApi
from workers.runner.demo import run_demo
from workers.runner.lifecycle import StackError, attached, bring_down, bring_up, program_states
from workers.runner.local_node import join_home
from workers.runner.onboarding import trust_lines
from workers.runner.programs import default_stack, started_settings
from workers.runner.serve import serve
from workers.runner.settings import RunnerSettings
from workers.runner.stack import saved_stack


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    asked = _parse(arguments)
    if asked.command == "serve":
        serve(asked.stack)
    settings = RunnerSettings()
    try:
        return _COMMANDS[asked.command](settings)
    except (StackError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _up(settings: RunnerSettings) -> int:
    home = settings.home.absolute()
    if not bring_up(home, lambda: default_stack(settings), tell):
        tell("it was up already, with the settings of its start; `make down` first to change them")
    settings = started_settings(settings)
    with attached(home, tell):
        node = join_home(settings, Commands(settings, tell, shown=False), tell)
    for line in trust_lines(node):
        tell(line)
    api, ui = settings.api_url, settings.ui_url
    addresses = f"Guide {api}/guide, API {api}/docs, Temporal UI {ui}"
    tell(f"up: node {node['name']} is {node['status']}. {addresses}")
    return 0


def _demo(settings: RunnerSettings) -> int:
    run_demo(settings, tell)
    return 0


def _down(settings: RunnerSettings) -> int:
    going = _going_on(settings)
    bring_down(settings.home.absolute(), tell)
    tell("down: none of its processes is running; jobs on nodes go on, and `make up` finds them")
    for line in going:
        tell(line)
    with suppress(RefusedError):  # It harms nobody while it stands.
        if network_wall.rest():
            tell("no job is left: the network wall of this machine is away until the next one")
    return 0


def _going_on(settings: RunnerSettings) -> list[str]:
    """What says which jobs go on while the stack is down; empty where none is known of."""
    try:
        jobs = PublicApi(started_settings(settings)).running_jobs()
    except (OSError, StackError):  # It was never up, or is not up now.
        return []
    ports = {job["id"]: f", at port {job['port']} of its machine" for job in jobs if job["port"]}
    lines = [f"  {job['name']} ({job['id']}){ports.get(job['id'], '')}" for job in jobs]
    if lines:
        lines.append("to end one: `make up`, then `.venv/bin/baseload cancel JOB`, or `kill-all`")
    return lines


def _status(settings: RunnerSettings) -> int:
    stack = saved_stack(settings.home.absolute())
    states = program_states(stack) if stack else []
    for state in states:
        word = "ready" if state.ready else "running" if state.record else "down"
        since = f"pid {state.record.pid} since {state.record.started_at}" if state.record else ""
        tell(f"{state.name:<10} {word:<8} {since}".rstrip())
    return 0 if states and all(state.ready for state in states) else 1


_COMMANDS = {"up": _up, "down": _down, "status": _status, "demo": _demo}


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.runner", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start everything and wait until it is ready")
    commands.add_parser("down", help="end everything that was started")
    commands.add_parser("status", help="show what runs now; exits 1 unless everything is ready")
    commands.add_parser("demo", help="as up, then run a real job and sum up what happened")
    runner = commands.add_parser("serve", help="run the runner process in the foreground")
    runner.add_argument("stack", type=Path, help="the stack, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
