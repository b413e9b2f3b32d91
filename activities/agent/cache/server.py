"""The server of a region's cache, for the machines of the region alone; it is read-only.

    GET /code/<sha256>                           an archive of code, put here by the platform
    GET /parts/<name>                            a part of a content, from a byte on (Range)
    GET /simple/<project>/                       the index's page of a project
    GET /files/<project>/<sha256>/<file>         a file that such a page names
    GET /v2/<registry>/<name>/manifests/<tag>    a public image, and its blobs (`images.py`)
    GET /kept                                    what is kept, as JSON: kind, name, bytes, last use
    GET /kept/<kind>/<name>                      one of these, for the cache that takes the place
    GET /index                                   the hash of the index's address
    GET /stats                                   counters, as JSON

It speaks TLS, with a certificate of the region; what is not public is for who has the token of the
region's nodes. A cache that an earlier release has prepared does neither.

The server runs as an account that owns only the cache, and runs no code of any job.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - else the first name lookup imports it, which is too late
import grp
import hashlib
import hmac
import ipaddress
import json
import os
import pwd
import re
import shutil
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

from ..errors import RefusedError
from ..folders import Folders, read_json, take_lock, write_json
from ..host import prctl, processes
from .images import ImageMirror
from .location import FOLDER, IDENTITY, LOCK, SERVING, configuration_of
from .package_index import Counters, PackageMirror, UpstreamError
from .store import CHUNK_BYTES, CODE, KINDS, PARTS, CacheStore

AT_ONCE = 128
AT_ONCE_OF_PEER = 32
REQUEST_S = 10.0
"""How long a machine may take to send its request."""
FETCH_S = 3600.0
"""How long a machine waits at most while the cache fetches what it asks for."""
IDLE_S = 60.0
SLOWEST_BYTES_PER_S = 256 << 10
"""A machine that takes an answer more slowly asks the index itself."""
PUBLIC = ("simple", "files", "v2")
"""What everybody may have anyway. pip and podman get no token, which a build could read."""
ABOUT_ITSELF = ("stats", "index", "kept")
HTML = "text/html; charset=utf-8"
BYTES = "application/octet-stream"
FROM_A_BYTE_ON = re.compile(r"bytes=(\d{1,15})-\Z")


class Connections:
    """The open connections, none of which lasts for longer than its deadline.

    No machine has more than its part of them. When there is no place left, the connection goes that
    has waited longest for its request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[str, float, bool]] = {}
        """The machine, the deadline, and whether the request is still to come."""

    def admit(self, connection: socket.socket, peer: str) -> bool:
        """Whether the machine may have this connection; its request is due from now on."""
        with self._lock:
            if sum(peer == other for other, _, _ in self._open.values()) >= AT_ONCE_OF_PEER:
                return False
            if len(self._open) >= AT_ONCE and not self._cut_one():
                return False
            self._open[connection] = (peer, time.monotonic() + REQUEST_S, True)
            return True

    def limit(self, connection: socket.socket, seconds: float) -> None:
        """Give a connection, whose request has come, so many seconds from now on."""
        with self._lock:
            if connection in self._open:
                peer, _, _ = self._open[connection]
                self._open[connection] = (peer, time.monotonic() + seconds, False)

    def forget(self, connection: socket.socket) -> None:
        """Free the place of a connection that is being closed."""
        with self._lock:
            self._open.pop(connection, None)

    def peers(self) -> list[str]:
        """The machine of each open connection."""
        with self._lock:
            return [peer for peer, _, _ in self._open.values()]

    def cut_late(self) -> None:
        """End the connections whose deadline has passed."""
        now = time.monotonic()
        with self._lock:
            for connection, (_, deadline, _) in self._open.items():
                if deadline < now:
                    _cut(connection)

    def _cut_one(self) -> bool:
        waiting = [
            (deadline, connection.fileno(), connection)
            for connection, (_, deadline, is_waiting) in self._open.items()
            if is_waiting
        ]
        if not waiting:
            return False
        connection = min(waiting)[2]
        _cut(connection)
        del self._open[connection]
        return True


def _cut(connection: socket.socket) -> None:
    """End a connection; the thread that reads it or writes to it then ends as well."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # Not TLS's, whose thread is at work.


class Cache(ThreadingHTTPServer):
    """The server, with its store and its mirror."""

    daemon_threads = True
    request_queue_size = AT_ONCE
    allow_reuse_address = True

    def __init__(
        self, address: tuple[str, int], store: CacheStore, wanted: dict[str, Any], tls: Any = None
    ) -> None:
        super().__init__(address, Handler)
        self.tls: ssl.SSLContext | None = tls
        self.index_sha256 = hashlib.sha256(str(wanted["index_url"]).encode()).hexdigest()
        self.token_sha256 = str(wanted.get("token_sha256") or "")
        self.store = store
        self.counters = Counters()
        self.mirror = PackageMirror(store, wanted["index_url"], self.counters)
        self.images = ImageMirror(store, wanted.get("registries") or {}, self.counters)
        self.connections = Connections()

    def server_bind(self) -> None:
        """Bind without HTTPServer's lookup of our own name, which may wait for a name server."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "cache", int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; its handshake is its own thread's, so that nobody waits for it."""
        connection, peer = super().get_request()
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            except OSError:  # It has gone already.
                connection.close()
                raise
        return connection, peer

    def is_node(self, authorization: str) -> bool:
        """Whether a request comes from a node of the region; without TLS there is no token."""
        if not self.token_sha256:
            return True
        found = hashlib.sha256(authorization.encode(errors="replace")).hexdigest()
        return hmac.compare_digest(found, self.token_sha256)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Accept private addresses only; a client from outside the network keeps a public one."""
        peer = client_address[0]
        return ipaddress.ip_address(peer).is_private and self.connections.admit(request, peer)

    def service_actions(self) -> None:
        """Called in each turn of the loop that accepts connections."""
        self.connections.cut_late()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, however it has ended."""
        self.connections.forget(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error: the client has gone, or our disk is full and it asks the index itself."""
        del request
        sys.stderr.write("%s: %s\n" % (client_address[0], sys.exc_info()[1]))


class Handler(BaseHTTPRequestHandler):
    """The handler of one request; the connection is closed after the answer."""

    server: Cache
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer the request; an unknown path is 404."""
        self.server.connections.limit(self.connection, FETCH_S)
        path = urllib.parse.urlsplit(self.path).path
        segments = [urllib.parse.unquote(each) for each in path.strip("/").split("/")]
        try:
            self._answer(segments)
        except UpstreamError as error:
            self._refuse(502, _words_of(error))
        except RefusedError as refusal:
            self._refuse(404, refusal.message)

    def _answer(self, segments: list[str]) -> None:
        cache = self.server
        is_public = segments[0] in PUBLIC
        if not is_public and not cache.is_node(self.headers.get("Authorization") or ""):
            self._refuse(401, "it is for nodes of the region")
        elif segments[0] in ABOUT_ITSELF:
            self._answer_about_itself(segments)
        elif segments[0] == "simple" and len(segments) == 2:
            page = cache.mirror.page(segments[1])
            self._give(page, HTML) if page is not None else self._refuse(404, "no such project")
        elif segments[0] == "files" and len(segments) == 4:
            self._give_file(cache.mirror.file(*segments[1:]))
        elif segments[0] == "code" and len(segments) == 2:
            file = cache.store.open(CODE, segments[1])
            cache.counters.add("code_misses" if file is None else "code_hits")
            self._give_file(file)
        elif segments[0] == "parts" and len(segments) == 2:
            file = cache.store.open(PARTS, segments[1])
            cache.counters.add("part_misses" if file is None else "part_hits")
            self._give_file(file, self._first_byte())
        elif segments[0] == "v2":
            self._answer_registry(segments[1:])
        else:
            self._refuse(404, "nothing of that name")

    def _answer_about_itself(self, segments: list[str]) -> None:
        """Answer a node that asks what this cache reads and holds."""
        cache = self.server
        if segments == ["stats"]:
            self._give(json.dumps(self._stats()).encode(), "application/json")
        elif segments == ["index"]:
            self._give(cache.index_sha256.encode(), BYTES)
        elif segments == ["kept"]:
            self._give(json.dumps(cache.store.listing()).encode(), "application/json")
        elif segments[0] == "kept" and len(segments) == 3 and segments[1] in KINDS:
            self._give_file(cache.store.open(segments[1], segments[2], is_use=False))
        else:
            self._refuse(404, "nothing of that name")

    def _answer_registry(self, segments: list[str]) -> None:
        """Answer podman, as a registry does; what is not here it asks the image's own registry."""
        images, name = self.server.images, "/".join(segments[1:-2])
        if segments == []:
            self._give(b"{}", "application/json")
        elif segments[-2:-1] == ["manifests"]:
            found = images.manifest(segments[0], name, segments[-1])
            self._give_file(*((found[0], 0, found[1]) if found else (None,)))
        elif segments[-2:-1] == ["blobs"]:
            self._give_file(images.blob(segments[0], name, segments[-1]))
        else:
            self._refuse(404, "nothing of that name")

    def do_HEAD(self) -> None:
        """Answer as to GET, without the content."""
        self.do_GET()

    def _first_byte(self) -> int:
        asked = FROM_A_BYTE_ON.match(self.headers.get("Range") or "")
        return int(asked.group(1)) if asked else 0

    def _stats(self) -> dict[str, int]:
        store = self.server.store
        kept = {"kept_bytes": store.size(), "max_bytes": store.max_bytes}
        return {**self.server.counters.shown(), **kept}

    def _give_file(self, file: BinaryIO | None, first_byte: int = 0, kind: str = BYTES) -> None:
        if file is None:
            self._refuse(404, "not here")
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            if first_byte > size:
                self._refuse(416, "it has %d bytes" % size)
                return
            self._send_head(206 if first_byte else 200, kind, size - first_byte)
            if self.command == "HEAD":
                return
            file.seek(first_byte)
            shutil.copyfileobj(file, self.wfile, CHUNK_BYTES)
        self.server.counters.add("served_bytes", size - first_byte)

    def _give(self, content: bytes, kind: str) -> None:
        self._send_head(200, kind, len(content))
        self._write(content)

    def _write(self, content: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: int, words: str) -> None:
        content = words.encode() + b"\n"
        self._send_head(status, "text/plain; charset=utf-8", len(content))
        self._write(content)

    def _send_head(self, status: int, kind: str, size: int) -> None:
        self.server.connections.limit(self.connection, IDLE_S + size / SLOWEST_BYTES_PER_S)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base names it
        """Log nothing: requests are counted, see `/stats`."""
        del format, args


def _words_of(error: UpstreamError) -> str:
    """What anybody may read of a failure: no address, which may have a password in it."""
    cause = error.__cause__
    if isinstance(cause, urllib.error.HTTPError):
        return "the index or registry answers %d" % cause.code
    if isinstance(cause, RefusedError):
        return cause.message
    return "the index or registry has not given it"


def serve(root: str) -> None:
    """Serve until killed; return at once when another server serves this root."""
    folders = Folders(root)
    lock = take_lock(os.path.join(folders.root, LOCK), wait=False)
    wanted = configuration_of(folders)
    if lock is None or wanted is None:
        return
    store = CacheStore(os.path.join(folders.root, FOLDER), int(wanted["max_bytes"]))
    cache = _bound(folders, wanted, store)
    this = processes.find(os.getpid())
    serving = {
        "host": wanted["host"],
        "port": cache.server_port,
        "pid": os.getpid(),
        "start_ticks": this.start_ticks if this else None,
    }
    write_json(os.path.join(folders.root, SERVING), serving, durable=False)
    if wanted.get("user"):
        _become(wanted["user"])
    store.make()
    store.evict()
    cache.serve_forever()


def _bound(folders: Folders, wanted: dict[str, Any], store: CacheStore) -> Cache:
    """The server on its port; without a fixed one, on the last port, which machines know."""
    before = read_json(os.path.join(folders.root, SERVING)) or {}
    tls = _tls(folders) if wanted.get("token_sha256") else None
    if not wanted["port"] and before.get("host") == wanted["host"]:
        with contextlib.suppress(OSError):  # Another process uses the port now.
            return Cache((wanted["host"], before["port"]), store, wanted, tls)
    return Cache((wanted["host"], int(wanted["port"])), store, wanted, tls)


def _tls(folders: Folders) -> ssl.SSLContext:
    """The server's side of TLS, with the certificate that the platform has sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(os.path.join(folders.root, IDENTITY))
    return context


def _become(user: str) -> None:
    entry = pwd.getpwnam(user)
    group = grp.getgrgid(entry.pw_gid)
    os.setgroups([])
    os.setgid(group.gr_gid)
    os.setuid(entry.pw_uid)
    os.umask(0o077)
    prctl.forbid_new_privileges()
