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
COMPLETION = "_BASELOAD_COMPLETE"
"""The variable by which a shell asks for completions."""

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
    app: str = "app"
    """The name of its commands in the module, which may have those of several groups."""


_STORED = "create, ls, show, export, retry, rm"
_ACTIONS = ", ".join(action.name for action in NODE_ACTIONS)
_DEVICE = "add, ls, show, logs, set, maintenance, stop, …, rm: Jetsons at the edge"
SECTIONS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Jobs",
        (
            Entry("init", "Write a job file for the folder here", "init"),
            Entry("run", "Run a command here as a job: run --gpus A100:1 -- python x.py", "run"),
            Entry("submit", "Submit a job file: submit job.yaml [--follow | --dry-run]", "submit"),
            Entry("ps", "List jobs", "jobs"),
            Entry("show", "Show jobs", "jobs"),
            Entry("top", "What runs now: time, cost, CPUs, memory, GPUs", "top"),
            Entry(
                "logs", "Print what a job printed; -f follows it, --tail 20, --since 10m", "logs"
            ),
            Entry("output", "Fetch and unpack a job's output", "output"),
            Entry("exec", "Run a command in a running job: exec JOB -- nvidia-smi", "reach"),
            Entry("ssh", "A shell in a running job; --stdio for ssh, scp and editors", "reach"),
            Entry("forward", "A port of a running job on 127.0.0.1: forward JOB 8888", "reach"),
            Entry("link", "A browser's link to a notebook or endpoint", "reach"),
            Entry("placement", "Why a job waits, or where it was placed", "jobs"),
            Entry("charges", "What a job has cost so far", "jobs"),
            Entry("wait", "Wait until jobs have ended", "job_actions"),
            Entry("retry", "Submit a job again, with the same code", "job_actions"),
            Entry("cancel", "End jobs for good", "job_actions"),
            Entry("stop", "Stop notebooks or endpoints; they can be started again", "job_actions"),
            Entry("start", "Start stopped notebooks or endpoints", "job_actions"),
            Entry("rm", "Remove jobs that have ended", "job_actions"),
            Entry(
                "federated",
                "create, ls, show, cancel: your model at the data of another account",
                "federated_jobs",
                True,
            ),
            Entry("kill-all", "End all jobs of the account", "job_actions"),
        ),
    ),
    (
        "Machines",
        (
            Entry(
                "provider",
                "enable, checks, rotate, prefer, disable, colab-bootstrap, ls, show",
                "providers",
                True,
            ),
            Entry(
                "credentials", "ls, set, rm: keys of providers in the store", "credentials", True
            ),
            Entry("quotas", "What a cloud allows in a region, and what to raise", "quotas"),
            Entry(
                "region",
                "create, add (in a cloud), change, guests, ls, show, rm: places with machines",
                "regions",
                True,
            ),
            Entry("node", f"add, join-token, ls, show, {_ACTIONS}, replace, rm", "nodes", True),
            Entry(
                "idle-workload",
                "show, set, rm: what nodes run while no job is there, and the wallets",
                "idle_workload",
                True,
            ),
            Entry(
                "datastore", "add, ls, show, rm: NFS and SMB shares of a region", "datastores", True
            ),
            Entry(
                "reservation",
                "create, ls, show, rm: a hostname and a port for one job at a time",
                "reservations",
                True,
            ),
            Entry("device", _DEVICE, "devices", True),
            Entry(
                "device-config",
                "create, update, ls, show, diff, rm: what devices run",
                "device_configurations",
                True,
            ),
            Entry("deploy", "Bring a revision to devices: deploy CONFIG | DEVICE…", "deployments"),
            Entry(
                "deployment",
                "ls, show, follow, pause, resume, stop, roll-back",
                "deployments",
                True,
                "deployment",
            ),
            Entry(
                "boot-drive",
                "request, ls, show, receive, withdraw: drives from which machines start",
                "boot_drive_requests",
                True,
            ),
            Entry("offers", "Which machines would fit, and why others do not", "offers"),
            Entry("leases", "Machines that cost money, and what they have cost", "leases"),
            Entry(
                "reconcile",
                "Compare providers' machines with the leases now; --end (administrators)",
                "reconciliation",
            ),
            Entry("kill", "Terminate leased machines, and wait until gone: kill --all", "leases"),
        ),
    ),
    (
        "Data",
        (
            Entry("dataset", f"{_STORED}: files to read", "artifacts", True, "dataset"),
            Entry("model", f"{_STORED}: files of a model", "artifacts", True, "model"),
            Entry("checkpoint", f"{_STORED}: to go on from", "artifacts", True, "checkpoint"),
            Entry("volume", f"{_STORED}, snapshot: files to write", "artifacts", True, "volume"),
        ),
    ),
    (
        "Account",
        (
            Entry("login", "Keep the address and the key of an API in a profile", "login"),
            Entry("profile", "ls, use, rm: addresses and keys under names", "profiles", True),
            Entry("completion", "Completion for bash, zsh or fish", "completion"),
            Entry("status", "Who you are, your credits, and what runs", "status"),
            Entry("events", "What happened, to one resource or to all; -f follows", "events"),
            Entry("bill", "The statement of a period, in credits (1 = 1 US dollar)", "billing"),
            Entry("statement", "As bill; of one project, provider, region, job, device", "billing"),
            Entry("usage", "Who used your machines, projects and models", "billing"),
            Entry("costs", "Charges and machines, by day, provider, project, region", "billing"),
            Entry("tco", "When own machines have paid for themselves, against renting", "tco"),
            Entry(
                "credit",
                "ls; add, record: give credits, record a payment (administrators)",
                "credit",
                True,
            ),
            Entry("secret", "set, ls, rm: secrets of a project for its jobs", "secrets", True),
            Entry(
                "project",
                "create, ls, show, set, rm; key set, ls, rm: keys of other services",
                "projects",
                True,
            ),
            Entry("member", "ls, set, rm, leave: who may use a project", "members", True),
            Entry(
                "invite", "create, ls, accept, rm: people of other accounts", "invitations", True
            ),
            Entry("account", "ls, show, use, leave, …: accounts of yours", "accounts", True),
            Entry("user", "create, ls, set, rm: users of the account", "users", True),
            Entry("key", "create, ls, rm: keys to the API", "keys", True),
            Entry("audit", "ls, verify (administrators): who did what", "audit", True),
            Entry("admin", "audit, reverse (administrators): the whole ledger", "admin", True),
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
        lines += ["", f"{title}:", *(f"  {entry.name:<15}{entry.help}" for entry in section)]
    lines += ["", "Fields of a job file: baseload help job [FIELD], such as resources.gpus"]
    lines += ["", "Exit codes:", *(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES)]
    lines += [
        "",
        "Where and who (baseload login keeps both; or ~/.config/baseload/config.toml: url, key):",
        "  BASELOAD_API        the API's address; default http://127.0.0.1:8700",
        "  BASELOAD_PROFILE    the profile, as --profile (baseload profile ls)",
        "  BASELOAD_API_KEY    the key; else admin.key in $BASELOAD_HOME, .baseload or ~/.baseload",
    ]
    return "\n".join(lines)
