"""The rules of nftables that make the network wall; `network_wall` says what they are for."""

from __future__ import annotations

import ipaddress
from typing import Any

from ..errors import RefusedError

RESOLVERS = "/etc/resolv.conf"
STUBS = ("127.0.0.53", "127.0.0.54")
"""Where systemd-resolved answers, which may start after the wall is built."""
LINK_LOCAL = (
    *("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32"),
    "168.63.129.16/32",
)
"""Where clouds tell a machine its secrets; the rest of these networks is of no use to a job."""
# A job asks by mDNS and LLMNR, whose answers come from 5353 and 5355, and answers by neither.
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
  set peers { type uid . mark; }
  set ports { type inet_service; }
  set holders { type uid . inet_service; }
  set private { type inet_service; }
  chain input {
    type filter hook input priority filter; policy accept;
    iifname "lo" accept
    ct direction original tcp dport @private reject with tcp reset
    ct direction original udp dport @private drop
  }
  chain output {
    type filter hook output priority filter; policy accept;
    oifname "lo" ct direction original meta skuid != 0 jump callers
    ct direction reply meta skgid %(gid)d meta l4proto { tcp, udp } th sport @ports jump answers
    oifname "lo" ct direction reply ct mark and 0xffff0000 == 0x%(mark)x jump replies
    meta skgid %(gid)d jump jobs
  }
  chain callers {
    meta l4proto { tcp, udp } meta skuid . th dport @holders return
    meta l4proto { tcp, udp } th dport @private reject with icmpx admin-prohibited
  }
  chain answers {
    meta skuid . th sport @holders return
    drop
  }
  chain replies {
    meta skuid . ct mark @own jump answered
    meta skuid . ct mark @peers jump answered
    tcp flags & rst == rst accept
    drop
  }
  chain answered {
    ct mark set ct mark and 0xffff accept
  }
  chain jobs {
    udp sport { 5353, 5355 } drop
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


def text(table: str, mark: int, gid: int, notes: list[dict[str, Any]]) -> str:
    """What replaces the wall as it is by one for the group of all job accounts.

    notes: `networks` and `ports` that each root on this machine has asked to close.
    Raises: RefusedError `network-wall`, for a network that is none.
    """
    networks = [*LINK_LOCAL, *(one for note in notes for one in note.get("networks") or [])]
    ports = [(host, int(port)) for note in notes for host, port in note.get("ports") or []]
    values: dict[str, Any] = {"table": table, "mark": mark, "gid": gid}
    for version in (4, 6):
        values["resolvers%d" % version] = _elements(_of(version, [*STUBS, *resolvers()]))
        values["closed%d" % version] = _elements(_of(version, networks))
        values["closed_ports%d" % version] = _elements(
            ["%s . %d" % (host, port) for host, port in ports if _of(version, [host])]
        )
    return RULES % values


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


def resolvers() -> list[str]:
    """The addresses of this machine's name servers; what is no address is none."""
    try:
        with open(RESOLVERS) as file:
            lines = [line.split() for line in file]
    except (OSError, ValueError):
        return []
    named = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    return sorted({one for one in named if _is_address(one)})


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
