"""The wall around the network of jobs: rules of nftables for the group of all job accounts.

A job reaches no service of its own machine but those of its own account, so neither the control
plane's Temporal nor another job, and no address that a cloud's machines are told secrets at. What
else is closed, the control plane says when it prepares the node. Names are resolved by the
machine's own name servers. Replies are let through, so that a job's port can be reached.

At the port of a run only the run's own account answers, whoever has listened there first. The port
of a notebook or an endpoint is private as well, unless its job has a reservation: nobody reaches it
but the run itself and root, from this machine; people reach it by sessions, which enter the run. No
job speaks mDNS as a responder does, so none answers for the hostname of another.

An account's connections on this machine carry a mark of the account, and only what is sent by the
same account, or by another worker of its job, replies to them: a listener tells whose it is by its
first packet, and not before. Then the mark goes: what a closed socket still sends is of nobody.

The rules are of the whole machine, on which several control planes may have a root each. Each keeps
what it closes in a file beside the job accounts; the rules are made anew when they are missing,
as they are after a restart of the machine or of its firewall, and when its name servers are others.
"""

from __future__ import annotations

import grp
import itertools
import os
import pwd
import signal
import subprocess
import zlib
from typing import Any

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, read_json, take_lock, write_json
from ..loading import load
from . import job_accounts, prctl, processes

RESOLVERS = "/etc/resolv.conf"
UPKEEP_S = 60.0
"""How often the wall is made anew when it is missing."""
UPKEEP_LIMIT_S = 90
TABLE = "inet baseload"
MARK = 0xBA5E0000


def build(folders: Folders, asked: dict[str, Any]) -> str | None:
    """Make the wall for the jobs of this root; return why it cannot be had, None when it stands.

    asked: `networks`, a list of networks that are closed to jobs, and `ports`, a list of address
    and port.
    """
    if os.geteuid() != 0:
        return "the login user is not root: nothing holds jobs off this machine's network"
    os.makedirs(job_accounts.ACCOUNTS, mode=0o700, exist_ok=True)
    write_json(_note(folders), {"root": folders.root, **asked})
    try:
        with _locked():
            _load()
    except RefusedError as refused:
        os.unlink(_note(folders))
        return "%s: nothing holds jobs off this machine's network" % refused.message
    return None


def is_asked(folders: Folders) -> bool:
    """Whether the jobs of this root are to have a wall."""
    return os.path.exists(_note(folders))


def keep(folders: Folders, user: str | None) -> None:
    """Let an account, and its run's port, into the wall, which is built anew when it is missing.

    Another root on this machine may have a wall where this one has none; it then stands for the
    jobs of both.
    Raises: RefusedError `network-wall`, when the node should have a wall and has none.
    """
    if os.geteuid() != 0 or not user:
        return
    must_stand = is_asked(folders)
    if not must_stand and not _has_nft():
        return
    with _locked():
        text = _let_in(pwd.getpwnam(user).pw_uid) + _holders()
        if _nft(["-f", "-"], text).returncode == 0:
            if (read_json(_made_of()) or {}).get("resolvers") != _resolvers_mark():
                _load()
            return
        # The wall is missing, or was built by an earlier release, without the sets of the ports.
        if must_stand or _nft(["list", "table", *TABLE.split()]).returncode == 0:
            _load()
            _run(text)


class Upkeep:
    """Keeps the wall as it should be while a run lasts, by a child, so that nothing waits for it.

    A machine may get its name servers after a run has started, or others; its firewall may be
    started anew, which takes the wall away.
    """

    def __init__(self, folders: Folders, user: str | None) -> None:
        self._folders = folders
        self._user = user
        self._due = processes.monotonic_s() + UPKEEP_S
        self._resolvers = _resolvers_mark()

    def keep(self) -> None:
        """Look after the wall when that is due, or the file of the name servers is another one."""
        if os.geteuid() != 0 or not self._user or not _has_nft():
            return
        now, seen = processes.monotonic_s(), _resolvers_mark()
        if now < self._due and seen == self._resolvers:
            return
        self._due, self._resolvers = now + UPKEEP_S, seen
        if not os.fork():
            self._be_child()

    def _be_child(self) -> None:
        try:
            prctl.die_with_parent()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.closerange(3, 256)
            signal.alarm(UPKEEP_LIMIT_S)
            keep(self._folders, self._user)
        except Exception as error:  # noqa: BLE001 - the next look tries again
            os.write(2, ("network wall: %s\n" % error).encode())
        finally:
            os._exit(0)


def rest() -> bool:
    """Take the wall away, unless a run that it stands for has not ended; return whether it did.

    `keep` builds it anew for the next run, so a machine without runs needs none.
    Raises: RefusedError `network-wall`.
    """
    if os.geteuid() != 0 or not _has_nft():
        return False
    if _nft(["list", "table", *TABLE.split()]).returncode != 0:
        return False
    with _locked():
        for note in _notes():
            for root in (str(note["root"]), os.path.join(str(note["root"]), "idle")):
                folders = Folders(root)
                if any(not folders.run(run_id).has("exit.json") for run_id in folders.run_ids()):
                    return False
        return _nft(["delete", "table", *TABLE.split()]).returncode == 0


def remove(folders: Folders) -> None:
    """Take the wall away, unless another root on this machine needs it."""
    if os.geteuid() != 0 or not is_asked(folders):
        return
    with _locked():
        os.unlink(_note(folders))
        if _notes():
            _load()
        else:
            _nft(["delete", "table", *TABLE.split()])


class _locked:  # noqa: N801 - used as a function
    """One at a time: each load replaces what the one before has made."""

    def __enter__(self) -> None:
        os.makedirs(job_accounts.ACCOUNTS, mode=0o700, exist_ok=True)
        self.lock = take_lock(os.path.join(job_accounts.ACCOUNTS, ".wall-lock"), wait=True)

    def __exit__(self, *_: object) -> None:
        os.close(self.lock or 0)


def _note(folders: Folders) -> str:
    name = "wall-%08x.json" % zlib.crc32(os.fsencode(folders.root))
    return os.path.join(job_accounts.ACCOUNTS, name)


def _notes() -> list[dict[str, Any]]:
    """What each root has asked for; a root that is gone asks for nothing any more."""
    notes = []
    for name in sorted(os.listdir(job_accounts.ACCOUNTS)):
        if not (name.startswith("wall-") and name.endswith(".json")):
            continue
        path = os.path.join(job_accounts.ACCOUNTS, name)
        note = read_json(path) or {}
        if os.path.isdir(str(note.get("root"))):
            notes.append(note)
        else:
            os.unlink(path)
    return notes


def _load() -> None:
    """Make all rules, for all roots; every job account is let in, so that running jobs go on."""
    job_accounts.make(JOB_USER)  # Its group is walled; another agent's root may have none yet.
    # Not imported above: most runs find the wall standing, and importing takes longer than asking.
    accounts = [entry for entry in pwd.getpwall() if entry.pw_name.startswith(JOB_USER + "-")]
    mark = _resolvers_mark()  # Before: if they change in between, the rules are made anew.
    text = load("host.network_rules:text")(TABLE, MARK, grp.getgrnam(JOB_USER).gr_gid, _notes())
    _run(text + "".join(_let_in(entry.pw_uid) for entry in accounts) + _holders())
    write_json(_made_of(), {"resolvers": mark}, durable=False)


def _made_of() -> str:
    """The path of the note of what the rules were made of."""
    return os.path.join(job_accounts.ACCOUNTS, ".wall-made-of")


def _resolvers_mark() -> int:
    """What changes with the file of the name servers; without a file, 0."""
    try:
        with open(RESOLVERS, "rb") as file:
            return zlib.crc32(file.read(1 << 16)) or 1
    except OSError:
        return 0


def _let_in(uid: int) -> str:
    """What lets the connections of an account into the wall, and marks them."""
    mark = MARK | uid & 0xFFFF
    return "add element %s marks { %d : 0x%x }\nadd element %s own { %d . 0x%x }\n" % (
        (TABLE, uid, mark) * 2
    )


def _holders() -> str:
    """What says anew whose the ports of all runs are, and which runs are of one job."""
    sets = ("holders", "ports", "private", "peers")
    text = "".join("flush set %s %s\n" % (TABLE, name) for name in sets)
    jobs: dict[tuple[str, str], list[int]] = {}
    for uid, holder in job_accounts.holders():
        if holder.get("port"):
            port = int(holder["port"])
            text += "add element %s ports { %d }\n" % (TABLE, port)
            text += "add element %s holders { %d . %d }\n" % (TABLE, uid, port)
            if holder.get("is_port_private"):
                text += "add element %s private { %d }\n" % (TABLE, port)
        if holder.get("job_id"):
            jobs.setdefault((str(holder["root"]), str(holder["job_id"])), []).append(uid)
    for uids in jobs.values():
        for uid, peer in itertools.permutations(uids, 2):
            text += "add element %s peers { %d . 0x%x }\n" % (TABLE, uid, MARK | peer & 0xFFFF)
    return text


def _has_nft() -> bool:
    return any(os.access(os.path.join(folder, "nft"), os.X_OK) for folder in os.get_exec_path())


def _run(text: str) -> None:
    done = _nft(["-f", "-"], text)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()[-500:]
        raise RefusedError("network-wall", "nft: exit %d: %s" % (done.returncode, words))


def _nft(arguments: list[str], text: str = "") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["nft", *arguments], input=text.encode(), capture_output=True, check=False, timeout=60.0
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError("network-wall", "nft: %s" % error) from error
