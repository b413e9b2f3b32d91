"""A double of a router on this machine's loopback: it answers searches, and maps ports strictly."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree as ET

from activities.agent.upnp.routes import Way

IP_CONNECTION = "urn:schemas-upnp-org:service:WANIPConnection:1"
DEVICE = """<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><device><deviceList><device><serviceList><service>
<serviceType>{service}</serviceType><controlURL>{control}</controlURL>
</service></serviceList></device></deviceList></device></root>"""
ANSWER = """<?xml version="1.0"?>
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>{body}</s:Body></s:Envelope>
"""
FAULT = """<s:Fault><detail><UPnPError xmlns="urn:schemas-upnp-org:control-1-0">
<errorCode>{code}</errorCode></UPnPError></detail></s:Fault>"""
ARGUMENTS = [
    "NewRemoteHost",
    "NewExternalPort",
    "NewProtocol",
    "NewInternalPort",
    "NewInternalClient",
    "NewEnabled",
    "NewPortMappingDescription",
    "NewLeaseDuration",
]


def own_loopback() -> str:
    """A loopback address of this process alone, so that test processes share no port 1900."""
    pid = os.getpid()
    return f"127.{1 + pid // 62_500 % 250}.{pid // 250 % 250}.{1 + pid % 250}"


class Router:
    """The router; a test sets what it says.

    refuses: the error code of AddPortMapping by its external port, lifetime and internal port;
    None: it maps. taken: ports that lead to other machines.
    """

    def __init__(self) -> None:
        self.address = own_loopback()
        self.service = IP_CONNECTION
        self.external_address = "8.8.4.4"
        self.refuses: Callable[[int, int, int], int | None] = lambda *_: None
        self.taken: dict[int, str] = {}
        self.mappings: dict[int, tuple[str, int, int]] = {}
        self.asked: list[str] = []
        self.location = ""
        self.deletes = True

    @property
    def way(self) -> Way:
        return Way("127.0.0.1", "8.8.8.8", self.address)

    def do(self, action: str, said: dict[str, str]) -> tuple[int, str]:
        """The error code, 0 for none, and the body of the answer."""
        self.asked.append(action)
        if action == "GetExternalIPAddress":
            found = f"<NewExternalIPAddress>{self.external_address}</NewExternalIPAddress>"
            return 0, found
        port = int(said["NewExternalPort"])
        assert said["NewProtocol"] == "TCP"
        if action == "GetSpecificPortMappingEntry":
            return self._entry(port)
        if action == "DeletePortMapping":
            if not self.deletes:
                return 501, ""
            return (0, "") if self.mappings.pop(port, None) else (714, "")
        return self._add(port, said)

    def _entry(self, port: int) -> tuple[int, str]:
        if port in self.taken:
            return 0, f"<NewInternalClient>{self.taken[port]}</NewInternalClient>"
        if port not in self.mappings:
            return 714, ""
        client, internal, _ = self.mappings[port]
        return 0, (
            f"<NewInternalPort>{internal}</NewInternalPort>"
            f"<NewInternalClient>{client}</NewInternalClient>"
        )

    def _add(self, port: int, said: dict[str, str]) -> tuple[int, str]:
        assert list(said) == ARGUMENTS
        lifetime_s, internal = int(said["NewLeaseDuration"]), int(said["NewInternalPort"])
        code = self.refuses(port, lifetime_s, internal)
        if code is None:
            self.mappings[port] = (said["NewInternalClient"], internal, lifetime_s)
        return code or 0, ""


def _handler(router: Router) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = DEVICE.format(service=router.service, control="/control")
            self._say(200, text)

        def do_POST(self) -> None:
            assert self.path == "/control"
            service, _, action = self.headers["SOAPAction"].strip('"').partition("#")
            assert service == router.service
            content = self.rfile.read(int(self.headers["Content-Length"]))
            call = ET.fromstring(content)[0][0]
            assert call.tag == f"{{{service}}}{action}"
            code, found = router.do(action, {one.tag: one.text or "" for one in call})
            name = f"u:{action}Response"
            body = f'<{name} xmlns:u="{service}">{found}</{name}>'
            answer = ANSWER.format(body=FAULT.format(code=code) if code else body)
            self._say(500 if code else 200, answer)

        def _say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return None

    return Handler


@contextmanager
def serving(router: Router) -> Iterator[Router]:
    """The router's description and services, and its answers to searches."""
    with ThreadingHTTPServer((router.address, 0), _handler(router)) as server:
        port = server.server_address[1]
        router.location = router.location or f"http://{router.address}:{port}/description.xml"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with answering(router.address, router.location):
                yield router
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(address: str, location: str) -> Iterator[None]:
    """Answer every search at this address with the location."""
    answer = f"HTTP/1.1 200 OK\r\nST: x\r\nLocation: {location}\r\n\r\n".encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as searched:
        searched.bind((address, 1900))
        stop = threading.Event()

        def answer_all() -> None:
            while not stop.is_set():
                packet, source = searched.recvfrom(4096)
                if packet.startswith(b"M-SEARCH * HTTP/1.1\r\n"):
                    searched.sendto(answer, source)

        thread = threading.Thread(target=answer_all)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"end", (address, 1900))
            thread.join()


@contextmanager
def saying(content: bytes, *, pause_s: float = 0.0, repeats: bool = False) -> Iterator[str]:
    """A router whose description is these bytes, with a pause after each; yields its address.

    repeats: it says them again and again until the other side hangs up.
    """
    with socket.create_server((own_loopback(), 0)) as server:
        address, port = server.getsockname()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(4096)
                        _send(connection, content, pause_s, repeats)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with answering(address, f"http://{address}:{port}/"):
                yield address
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _send(connection: socket.socket, content: bytes, pause_s: float, repeats: bool) -> None:
    size = 1 if pause_s else max(1, len(content))
    while True:
        for start in range(0, len(content), size):
            connection.sendall(content[start : start + size])
            time.sleep(pause_s)
        if not repeats:
            return
