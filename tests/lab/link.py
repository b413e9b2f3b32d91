"""The host as a machine on the lab's link that speaks mDNS, by python-zeroconf."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from zeroconf import IPVersion, ServiceInfo, Zeroconf, current_time_millis
from zeroconf._dns import DNSAddress
from zeroconf._services.info import AddressResolverIPv4, AddressResolverIPv6

from tests.lab.network import Network
from tests.lab.waiting import wait_until


class Link:
    """The host as one more machine on the lab's link: it resolves, and may have the name too."""

    def __init__(self, network: Network, name: str) -> None:
        self._name, self._address = name, network.host_address
        # Made where no event loop runs, so that they have one of their own.
        self._zeroconf = Zeroconf([self._address], ip_version=IPVersion.V4Only)
        self._rival = Zeroconf([self._address], ip_version=IPVersion.V4Only)

    def resolve(self, limit_ms: int = 1000) -> list[str]:
        """The addresses of the hostname, as the cache has them or as somebody answers."""
        resolver = AddressResolverIPv4(self._name)
        resolver.request(self._zeroconf, limit_ms)
        return resolver.parsed_addresses(IPVersion.V4Only)

    def resolve6(self, limit_ms: int = 1000) -> list[str]:
        """The IPv6 addresses of the hostname."""
        resolver = AddressResolverIPv6(self._name)
        resolver.request(self._zeroconf, limit_ms)
        return resolver.parsed_addresses(IPVersion.V6Only)

    def believed(self) -> list[str]:
        """The addresses of the hostname in the cache, without a question."""
        now_ms = current_time_millis()
        entries = self._zeroconf.cache.entries_with_name(self._name)
        return [
            socket.inet_ntoa(each.address)
            for each in entries
            if isinstance(each, DNSAddress) and not each.is_expired(now_ms)
        ]

    def until(self, address: str, limit_s: float = 5.0) -> None:
        """Wait until the hostname leads there and nowhere else.

        python-zeroconf believes a replaced record for a second more after each announcement.
        """
        wait_until(lambda: self.resolve(200) == [address], f"{self._name} is {address}", limit_s)

    @contextlib.contextmanager
    def claim(self) -> Iterator[str]:
        """Answer for the hostname too, at the address that this yields."""
        packed = [socket.inet_aton(self._address)]
        service = "_x._tcp.local."
        info = ServiceInfo(service, f"rival.{service}", 80, addresses=packed, server=self._name)
        self._rival.register_service(info, strict=False)
        try:
            yield self._address
        finally:
            self._rival.unregister_service(info)

    def close(self) -> None:
        self._rival.close()
        self._zeroconf.close()
