"""The agent that runs on a node: one verb per call, a JSON request in, a JSON answer out.

A verb's module is imported only for that verb, because the start of the interpreter takes most of a
call's time.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .errors import RefusedError
from .loading import load

ANSWERS = {
    "inspect": "host.inspection:inspect_machine",
    "prepare": "prepare:prepare",
    "release": "prepare:release",
    "reboot": "prepare:reboot",
    "show_status": "prepare:show_status",
    "switch_idle_workload": "idle.workload:switch",
    "has_code": "files.code_archive:has_code",
    "unpack_code": "files.code_archive:unpack_code",
    "keep_code": "cache.code:keep_code",
    "fetch_code": "cache.code:fetch_code",
    "fetch_input": "cache.code:fetch_input",
    "find_contents": "contents.transfers:find_contents",
    "fetch_content": "contents.transfers:fetch_content",
    "attest": "federated.attestation:attest",
    "has_model": "federated.model:has_model",
    "open_volumes": "contents.volumes:open_volumes",
    "fingerprint_volume": "contents.volumes:fingerprint_volume",
    "find_cache_address": "cache.service:find_address",
    "fill_cache": "cache.filling:fill_cache",
    "missing_parts": "cache.parts:missing_parts",
    "stage": "runs.stage:stage",
    "fingerprint_state": "runs.state_snapshots:fingerprint_state",
    "start": "runs.start:start",
    "status": "runs.status:status",
    "end": "runs.end:end",
    "clean": "runs.clean:clean",
    "orphans": "runs.clean:orphans",
    "prune": "runs.clean:prune",
    "check_datastore": "datastores.verbs:check_datastore",
    "store_on_datastore": "datastores.verbs:store_on_datastore",
    "stage_device": "devices.verbs:stage_device",
    "switch_device": "devices.verbs:switch_device",
    "stop_device": "devices.verbs:stop_device",
    "device_status": "devices.verbs:device_status",
    "clear_device": "devices.verbs:clear_device",
    "list_datastore": "datastores.reading:list_datastore",
}
# These verbs read or write bytes instead of one document; their request is the first line of stdin.
STREAMS = {
    "watch": "watch:watch",
    "read_log": "files.transfer:read_log",
    "pack_output": "files.transfer:pack_output",
    "receive_content": "contents.transfers:receive_content",
    "receive_model": "federated.model:receive_model",
    "pack_volume": "contents.volumes:pack_volume",
    "keep_parts": "cache.parts:keep_parts",
    "put_input": "files.transfer:put_input",
    "pack_state": "runs.state_snapshots:pack_state",
    "restore_state": "runs.state_snapshots:restore_state",
    "read_datastore": "datastores.reading:read_datastore",
    "watch_device": "devices.verbs:watch_device",
    "read_device_log": "devices.verbs:read_device_log",
    "run_command": "sessions.command:run_command",
    "connect_port": "sessions.port:connect_port",
}
DEVICE_VERBS = {"run_device": "devices.keeper:run", "end_device": "devices.keeper:end_left"}
"""What the unit of a device calls, with the agent's root."""
REFUSED = 3
MOST_CHARACTERS = 1800
"""Of the message of a refusal, but for a sign that some are left out."""


def _first_line() -> dict[str, Any]:
    """The request of a stream, read byte by byte so that the bytes after its line stay in stdin."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    request: dict[str, Any] = json.loads(bytes(line) or b"{}")
    return request


def _answer(verb: str) -> None:
    request = json.loads(sys.stdin.buffer.read() or b"{}")
    try:
        if "region_id" in request:
            load("host.join_file:check_request")(request)
        answer = {"ok": True}
        answer.update(load(ANSWERS[verb])(request))
    except RefusedError as refusal:
        answer = _refusal(refusal)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _refusal(refusal: RefusedError) -> dict[str, Any]:
    """The answer of a refusal, which may name what a job has written: a file, a line of its code.

    It is always short and always JSON, because a node whose answer is neither is believed no more.
    """
    message = refusal.message.encode(errors="replace").decode()  # Names may be no text.
    if len(message) > MOST_CHARACTERS:
        message = message[: MOST_CHARACTERS // 2] + " … " + message[-MOST_CHARACTERS // 2 :]
    return {"ok": False, "error": {"code": refusal.code, "message": message}}


def main() -> int:
    """Run the verb in argv[1]; return 0 with an answer, 3 when a stream was refused."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "supervise":
        load("runs.supervisor:supervise")(sys.argv[2], sys.argv[3])
        return 0
    if verb == "keep_idle_workload":
        load("idle.keeper:keep")(sys.argv[2])
        return 0
    if verb == "install_layer":
        status: int = load("packages.system_layers:install_layer")(sys.argv[2:])
        return status
    if verb == "serve_cache":
        load("cache.server:serve")(sys.argv[2])
        return 0
    if verb in DEVICE_VERBS:
        load(DEVICE_VERBS[verb])(sys.argv[2])
        return 0
    if verb in ANSWERS:
        _answer(verb)
        return 0
    if verb not in STREAMS:
        sys.stderr.write("agent: no verb %r\n" % verb)
        return 2
    try:
        load(STREAMS[verb])(_first_line())
    except RefusedError as refusal:
        sys.stderr.write(json.dumps(_refusal(refusal)) + "\n")
        return REFUSED
    except BrokenPipeError:
        return 0
    return 0
