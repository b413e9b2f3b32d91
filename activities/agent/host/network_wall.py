"""The wall around the network of jobs: rules of nftables for the group of all job accounts.

A job reaches no service of its own machine but those of its own account, so neither the control
plane's Temporal nor another job, and no address that a cloud's machines are told secrets at. What
else is closed, the control plane says when it prepares the node. Names are resolved by the
machine's own name servers. Replies are let through, so that a job's port can be reached.

At the port of a run only the run's own account answers, whoever has listened there first.

An account's connections on this machine carry a mark of the account, and only what is sent by the
same account replies to them: a listener tells whose it is by its first packet, and not before.

The rules are of the whole machine, on which several control planes may have a root each. Each keeps
what it closes in a file beside the job accounts; the rules are made anew when they are missing,
as they are after a restart of the machine.
"""

from __future__ import annotations

import glob
import grp
import ipaddress
import os
import pwd
import shutil
import subprocess
import zlib
from typing import Any

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, read_json, take_lock, write_json
from . import job_accounts

TABLE = "inet baseload"
MARK = 0xBA5E0000
RESOLVERS = "/etc/resolv.conf"
LINK_LOCAL = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32")
"""Where clouds tell a machine its secrets; the rest of these networks is of no use to a job."""
NEWEST = b"chain answers"
RULES = """
table %(table)s
delete table %(table)s
table %(table)s {
  set resolvers4 { type ipv4_addr; %(resolvers4)s }
  set resolvers6 { type ipv6_addr; %(resolvers6)s }
  set closed4 { type ipv4_addr; flags interval; auto-merge; %(closed4)s }
  set closed6 { type ipv6_addr; flags interval; auto-merge; %(closed6)s }
  set closed_ports4 { type ipv4_addr . inet_service; %(closed_ports4)s }
  set closed_ports6 { type ipv6_addr . inet_service; %(closed_ports6)s }
  map marks { type uid : mark; }
  set own { type uid . mark; }
  set ports { type inet_service; }
  set holders { type uid . inet_service; }
  chain output {
    type filter hook output priority filter; policy accept;
    ct direction reply meta skgid %(gid)d meta l4proto { tcp, udp } th sport @ports jump answers
    oifname "lo" ct direction reply ct mark and 0xffff0000 == 0x%(mark)x jump replies
    meta skgid %(gid)d jump jobs
  }
  chain answers {
    meta skuid . th sport @holders return
    drop
  }
  chain replies {
    meta skuid . ct mark @own accept
    tcp flags & rst == rst accept
    drop
  }
  chain jobs {
    ct direction reply accept
    meta l4proto { tcp, udp } th dport 53 ip daddr @resolvers4 accept
    meta l4proto { tcp, udp } th dport 53 ip6 daddr @resolvers6 accept
    ip daddr @closed4 reject with icmpx admin-prohibited
    ip6 daddr @closed6 reject with icmpx admin-prohibited
    ip daddr . tcp dport @closed_ports4 reject with tcp reset
    ip6 daddr . tcp dport @closed_ports6 reject with tcp reset
    oifname != "lo" accept
    ct state established accept
    meta l4proto tcp ct state new ct mark set meta skuid map @marks accept
    reject with icmpx admin-prohibited
  }
}
"""


def build(folders: Folders, asked: dict[str, Any]) -> str | None:
    """Make the wall for the jobs of this root; return why it cannot be had, None when it stands.

    asked: `networks`, a list of networks that are closed to jobs, and `ports`, a list of address
    and port.
    """
    if os.geteuid() != 0:
        return "the log-in user is not root: nothing holds jobs off this machine's network"
    os.makedirs(job_accounts.ACCOUNTS, mode=0o700, exist_ok=True)
    write_json(_note(folders), {"root": folders.root, **asked})
    try:
        with _locked():
            _load()
    except RefusedError as refused:
        os.unlink(_note(folders))
        return "%s: nothing holds jobs off this machine's network" % refused.message
    return None


def keep(folders: Folders, user: str | None) -> None:
    """Let an account, and its run's port, into the wall, which is built anew when it is missing.

    Another root on this machine may have a wall where this one has none; it then stands for the
    jobs of both.
    Raises: RefusedError `network-wall`, when the node should have a wall and has none.
    """
    if os.geteuid() != 0 or not user:
        return
    is_asked = os.path.exists(_note(folders))
    if not is_asked and not shutil.which("nft"):
        return
    with _locked():
        found = _nft(["list", "table", *TABLE.split()])
        if found.returncode != 0 and not is_asked:
            return
        if NEWEST not in found.stdout:  # Missing, or built by an earlier release.
            _load()
        entry = pwd.getpwnam(user)
        mark = "0x%x" % (MARK | entry.pw_uid & 0xFFFF)
        _run(
            "add element %s marks { %d : %s }\n" % (TABLE, entry.pw_uid, mark)
            + "add element %s own { %d . %s }\n" % (TABLE, entry.pw_uid, mark)
            + _ports()
        )


def rest() -> bool:
    """Take the wall away, unless a run that it stands for has not ended; return whether it did.

    `keep` builds it anew for the next run, so a machine without runs needs none.
    Raises: RefusedError `network-wall`.
    """
    if os.geteuid() != 0 or not shutil.which("nft"):
        return False
    if _nft(["list", "table", *TABLE.split()]).returncode != 0:
        return False
    with _locked():
        for note in _notes():
            folders = Folders(str(note["root"]))
            if any(not folders.run(run_id).has("exit.json") for run_id in folders.run_ids()):
                return False
        return _nft(["delete", "table", *TABLE.split()]).returncode == 0


def remove(folders: Folders) -> None:
    """Take the wall away, unless another root on this machine needs it."""
    if os.geteuid() != 0 or not os.path.exists(_note(folders)):
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
    for path in sorted(glob.glob(os.path.join(job_accounts.ACCOUNTS, "wall-*.json"))):
        note = read_json(path) or {}
        if os.path.isdir(str(note.get("root"))):
            notes.append(note)
        else:
            os.unlink(path)
    return notes


def _load() -> None:
    """Make all rules, for all roots; every job account is let in, so that running jobs go on."""
    notes = _notes()
    networks = [*LINK_LOCAL, *(one for note in notes for one in note.get("networks") or [])]
    ports = [(host, int(port)) for note in notes for host, port in note.get("ports") or []]
    accounts = [entry for entry in pwd.getpwall() if entry.pw_name.startswith(JOB_USER + "-")]
    marks = [(entry.pw_uid, MARK | entry.pw_uid & 0xFFFF) for entry in accounts]
    values: dict[str, Any] = {"table": TABLE, "mark": MARK, "gid": grp.getgrnam(JOB_USER).gr_gid}
    for version in (4, 6):
        values["resolvers%d" % version] = _elements(_of(version, _resolvers()))
        values["closed%d" % version] = _elements(_of(version, networks))
        values["closed_ports%d" % version] = _elements(
            ["%s . %d" % (host, port) for host, port in ports if _of(version, [host])]
        )
    text = RULES % values
    for uid, mark in marks:
        text += "add element %s marks { %d : 0x%x }\n" % (TABLE, uid, mark)
        text += "add element %s own { %d . 0x%x }\n" % (TABLE, uid, mark)
    _run(text + _ports())


def _ports() -> str:
    """What says anew whose the ports of all runs on this machine are."""
    text = "flush set %s holders\nflush set %s ports\n" % (TABLE, TABLE)
    for uid, port in job_accounts.held_ports():
        text += "add element %s ports { %d }\n" % (TABLE, port)
        text += "add element %s holders { %d . %d }\n" % (TABLE, uid, port)
    return text


def _of(version: int, addresses: list[str]) -> list[str]:
    found = []
    for address in addresses:
        try:
            network = ipaddress.ip_network(address.partition("%")[0], strict=False)
        except ValueError as error:
            raise RefusedError("network-wall", "network %r: %s" % (address, error)) from error
        if network.version == version:
            whole = network.prefixlen == network.max_prefixlen
            found.append(str(network.network_address) if whole else str(network))
    return sorted(set(found))


def _elements(found: list[str]) -> str:
    return "elements = { %s };" % ", ".join(sorted(set(found))) if found else ""


def _resolvers() -> list[str]:
    try:
        with open(RESOLVERS) as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


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
