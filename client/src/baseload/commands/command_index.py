"""The index of commands: what each does and which module has it; its import is cheap."""

from __future__ import annotations

from dataclasses import dataclass

from baseload.commands.node_actions import NODE_ACTIONS

OK = 0
NEGATIVE = 1
USAGE = 2
REFUSED = 3
UNREACHABLE = 4
INTERRUPTED = 130

EXIT_CODES = (
    (OK, "done; a followed job has finished"),
    (NEGATIVE, "a followed job did not finish, a wait did not reach its end, nothing fits"),
    (USAGE, "the command, a file or the settings are wrong; nothing was sent to the API"),
    (REFUSED, "refused by the API, with the reason"),
    (UNREACHABLE, "the API cannot be reached"),
    (INTERRUPTED, "interrupted; what runs goes on"),
)


@dataclass(frozen=True)
class Entry:
    """One command, or a group of commands."""

    name: str
    help: str
    module: str
    is_group: bool = False


_ACTIONS = ", ".join(action.name for action in NODE_ACTIONS)
SECTIONS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Jobs",
        (
            Entry("submit", "Submit a job file: submit job.yaml [--follow]", "submit"),
            Entry("ps", "List jobs", "jobs"),
            Entry("show", "Show a job", "jobs"),
            Entry("logs", "Print what a job printed; -f follows it", "logs"),
            Entry("output", "Fetch and unpack a job's output", "output"),
            Entry("exec", "Run a command in a running job: exec JOB -- nvidia-smi", "reach"),
            Entry("ssh", "A shell in a running job; --stdio for ssh, scp and editors", "reach"),
            Entry("forward", "A port of a running job on 127.0.0.1: forward JOB 8888", "reach"),
            Entry("link", "A browser's link to a notebook or endpoint", "reach"),
            Entry("placement", "Why a job waits, or where it was placed", "jobs"),
            Entry("charges", "What a job has cost so far", "jobs"),
            Entry("cancel", "End a job for good", "jobs"),
            Entry("stop", "Stop a notebook or endpoint; it can be started again", "jobs"),
            Entry("start", "Start a stopped notebook or endpoint", "jobs"),
            Entry("rm", "Remove jobs that have ended", "jobs"),
            Entry("kill-all", "End all jobs of the account", "jobs"),
        ),
    ),
    (
        "Machines",
        (
            Entry("provider", "enable, checks, rotate, disable, ls, show", "providers", True),
            Entry("quotas", "What a cloud allows in a region, and what to raise", "quotas"),
            Entry(
                "region",
                "create, add (in a cloud), change, ls, show, rm: places with machines",
                "regions",
                True,
            ),
            Entry("node", f"add, join-token, ls, show, {_ACTIONS}, rm", "nodes", True),
            Entry("offers", "Which machines would fit, and why others do not", "offers"),
            Entry("leases", "Machines that cost money, and what they have cost", "leases"),
            Entry("kill", "Terminate such machines, and wait until gone: kill --all", "leases"),
        ),
    ),
    (
        "Account",
        (
            Entry("status", "Who you are, your credits, and what runs", "status"),
            Entry("events", "What happened, to one resource or to all; -f follows", "events"),
            Entry("bill", "The statement of a period; --csv exports it", "billing"),
            Entry("credits", "add: give an account credits (administrators)", "credits", True),
            Entry("key", "create, ls, rm: keys to the API", "keys", True),
            Entry("audit", "ls, verify (administrators): who did what", "audit", True),
        ),
    ),
)


def entries() -> dict[str, Entry]:
    """Every command by its name, in the order of the help."""
    return {entry.name: entry for _, section in SECTIONS for entry in section}


def help_text() -> str:
    """The text of `baseload --help`."""
    lines = [
        "Usage: baseload COMMAND [ARGUMENTS]",
        "",
        "Machines you own, in your cloud, and rented by the hour, as one pool for your jobs.",
        "Names are accepted wherever ids are. Every command takes --help, and --json for scripts.",
    ]
    for title, section in SECTIONS:
        lines += ["", f"{title}:", *(f"  {entry.name:<11}{entry.help}" for entry in section)]
    lines += ["", "Exit codes:", *(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES)]
    lines += [
        "",
        "Where and who (settings in ~/.config/baseload/config.toml: url, key):",
        "  BASELOAD_API        the API's address; default http://127.0.0.1:8700",
        "  BASELOAD_API_KEY    the key; else admin.key in $BASELOAD_HOME, .baseload or ~/.baseload",
    ]
    return "\n".join(lines)
