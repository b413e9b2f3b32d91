"""A router between the lab's network and one that stands for the internet, with a real miniupnpd.

The machines of the lab are behind it, the platform is in front of it. Both networks are joined to
the host, but only the router leads from one to the other.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.lab.machine import Machine
from tests.lab.network import Network, inside, own_namespace
from tests.lab.waiting import wait_until

PROGRAMS = {"miniupnpd": "miniupnpd-nftables", "nft": "nftables"}
INTERNET = "44.77"
"""Of a block of public addresses: miniupnpd, like our keeper, maps no port of a private one."""
RULES = """
table inet filter {
    chain forward { type filter hook forward priority 0; policy accept; jump miniupnpd; }
    chain miniupnpd { }
    chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }
    chain prerouting_miniupnpd { }
    chain postrouting {
        type nat hook postrouting priority 100; jump postrouting_miniupnpd;
        oifname "outside" masquerade;
    }
    chain postrouting_miniupnpd { }
}
"""
CONFIGURATION = """
ext_ifname=outside
listening_ip=inside
port={port}
enable_upnp=yes
secure_mode=yes
enable_natpmp=no
notify_interval=60
uuid=5e9f9d0c-0000-4000-8000-0000000000{number:02x}
serial=1
model_number=1
upnp_table_name=filter
upnp_nat_table_name=filter
upnp_forward_chain=miniupnpd
upnp_nat_chain=prerouting_miniupnpd
upnp_nat_postrouting_chain=postrouting_miniupnpd
{more}
{rights}
deny 0-65535 0.0.0.0/0 0-65535
"""
ALLOWED = "allow 1024-65535 0.0.0.0/0 0-65535"


def missing_programs() -> list[str]:
    """The Debian packages that a router needs and that are not installed."""
    paths = "/usr/sbin:/sbin:/usr/bin:/bin"
    return [name for program, name in PROGRAMS.items() if not shutil.which(program, path=paths)]


class Router:
    """A router at .2 of the lab's network, and at `external_address` of the internet."""

    def __init__(self, network: Network) -> None:
        self.internet = Network(INTERNET)
        self.network = network
        self.address = f"{network.block}.{network.number}.2"
        self.external_address = f"{INTERNET}.{self.internet.number}.2"
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-router-"))
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
        )
        own_namespace(self._holder.pid)
        network.plug(self._holder.pid, "router", self.address, "inside")
        self.internet.plug(self._holder.pid, "router", self.external_address, "outside")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        self._nft(RULES)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def platform_address(self) -> str:
        """Where the machines reach the platform, which the host is."""
        return self.internet.host_address

    def inside(self, *command: str) -> str:
        """Run a command of the host in the router's network."""
        return inside(self._holder.pid, *command)

    def _nft(self, rules: str) -> None:
        (self.folder / "rules").write_text(rules)
        self.inside("nft", "-f", str(self.folder / "rules"))

    def start(self, *, rights: str = ALLOWED, more: str = "", port: int = 5000) -> None:
        """Start miniupnpd; rights: who may map what, more: further lines of its configuration."""
        conf = self.folder / "miniupnpd.conf"
        number = self.internet.number
        conf.write_text(CONFIGURATION.format(port=port, number=number, more=more, rights=rights))
        log = (self.folder / "log").open("ab")
        self._server = subprocess.Popen(
            [
                "setpriv", "--pdeathsig", "KILL",
                "nsenter", f"--net=/proc/{self._holder.pid}/ns/net",
                "miniupnpd", "-d", "-f", str(conf), "-P", str(self.folder / "pid"),
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        wait_until(lambda: self._listens(port), "miniupnpd: listens", 5.0)

    def _listens(self, port: int) -> bool:
        lines = Path(f"/proc/{self._holder.pid}/net/tcp").read_text().splitlines()
        lines += Path(f"/proc/{self._holder.pid}/net/tcp6").read_text().splitlines()
        return any(f":{port:04X} " in line and " 0A " in line for line in lines)

    def stop(self) -> None:
        """Stop miniupnpd, and forget every mapping, as a router does that restarts."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None
        self._nft("flush chain inet filter prerouting_miniupnpd\n"
                  "flush chain inet filter miniupnpd\n")  # fmt: skip

    def move(self) -> str:
        """Give the router another address outside, as a provider does; returns it."""
        number = self.internet.number
        self.inside("ip", "address", "flush", "dev", "outside")
        self.external_address = f"{INTERNET}.{number}.3"
        self.inside("ip", "address", "add", f"{self.external_address}/24", "dev", "outside")
        return self.external_address

    def share_address(self) -> None:
        """Put the router behind another one: its first address outside is private."""
        number = self.internet.number
        self.inside("ip", "address", "flush", "dev", "outside")
        for address in (f"100.64.{number}.2", self.external_address):
            self.inside("ip", "address", "add", f"{address}/24", "dev", "outside")

    def mappings(self) -> dict[int, str]:
        """The mapped ports, each with the address and port that it leads to."""
        rules = self.inside("nft", "list", "chain", "inet", "filter", "prerouting_miniupnpd")
        found = re.findall(r"dport (\d+) .*dnat ip to ([\d.]+:\d+)", rules)
        return {int(port): target for port, target in found}

    def lead(self, machine: Machine) -> None:
        """Make the router the machine's way out of its network."""
        machine.run("ip", "route", "replace", "default", "via", self.address)

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._holder.kill()
        self._holder.wait()
        with contextlib.suppress(RuntimeError):
            self.network.discard("router")
        self.internet.close()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
