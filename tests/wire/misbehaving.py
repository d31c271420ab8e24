"""A stdio MCP server that misbehaves on purpose: `python misbehaving.py MODE`. Stdlib only.

Every mode shakes hands properly, except those named `start-*`, and has a tool `ok` that answers "fine" and
a tool `bad` that does what the mode says.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: Any) -> None:
    raw(json.dumps(message).encode() + b"\n")


def result(key: Any, body: Any) -> None:
    send({"jsonrpc": "2.0", "id": key, "result": body})


def text(key: Any, words: str, **more: Any) -> None:
    result(key, {"content": [{"type": "text", "text": words}], **more})


def first_time() -> bool:
    """Whether no server of this episode, whose directory is the current one, came here before."""
    try:
        os.close(os.open("came-here", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def tools(key: Any, params: dict[str, Any]) -> None:
    ok: dict[str, Any] = {"name": "ok", "description": "Fine.", "inputSchema": SCHEMA}
    bad: dict[str, Any] = {"name": "bad", "description": "Not fine.", "inputSchema": SCHEMA}
    cursor = params.get("cursor")
    if MODE == "list-no-type":
        bad = {"name": "bad", "inputSchema": {"properties": {}}}
    elif MODE == "list-null-schema":
        bad = {"name": "bad", "description": 7, "inputSchema": None}
    elif MODE == "list-duplicates":
        return result(
            key, {"tools": [ok, bad, {**ok, "description": "Other."}, 5, {"description": "nameless"}]}
        )
    elif MODE == "list-endless":
        number = int(cursor or 0)
        return result(key, {"tools": [ok] if not number else [], "nextCursor": str(number + 1)})
    elif MODE == "list-endless-tools":
        number = int(cursor or 0)
        many = [{**ok, "name": f"t{number}_{i}"} for i in range(500)]
        return result(key, {"tools": [ok, bad, *many], "nextCursor": str(number + 1)})
    elif MODE == "list-same-cursor":
        return result(key, {"tools": [ok, bad], "nextCursor": "again"})
    elif MODE == "list-two-pages":
        if cursor is None:
            return result(key, {"tools": [ok], "nextCursor": "two"})
        return result(key, {"tools": [bad]})
    elif MODE == "list-refused":
        return send({"jsonrpc": "2.0", "id": key, "error": {"code": -32601, "message": "no tools here"}})
    elif MODE == "output-schema":
        bad["outputSchema"] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result(key, {"tools": [ok, bad]})


def bad(key: Any, arguments: dict[str, Any]) -> None:
    body = {"content": [{"type": "text", "text": "answer"}]}
    whole = {"jsonrpc": "2.0", "id": key, "result": body}
    match MODE:
        case "bad-utf8":
            raw(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"caf\xe9 \xff"}]}}\n'
                % key
            )
        case "noise":
            raw(b'Starting...\n\n[INFO] {not json}\n{"level": "info"}\n[1, 2]\nnull\n{ open\n')
            text(key, "answer")
        case "noise-same-line":
            raw(b"loading... done ")
            text(key, "answer")
        case "pretty":
            raw(json.dumps(whole, indent=2).encode() + b"\n")
        case "pretty-crlf":
            raw(b"\xef\xbb\xbf" + json.dumps(whole, indent=4).replace("\n", "\r\n").encode() + b"\r\n")
        case "batch":
            send([whole])
        case "byte-by-byte":
            for byte in json.dumps(whole).encode() + b"\n":
                raw(bytes([byte]))
        case "deep":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"x":%s}}\n' % (key, b"[" * 100_000 + b"]" * 100_000))
        case "deep-structured":
            raw(
                b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":%s,"content":[]}}\n'
                % (key, b"[" * 400 + b"]" * 400)
            )
        case "long-integer":
            raw(
                b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"n":%s},"content":[]}}\n'
                % (key, b"9" * 5000)
            )
        case "truncated-json":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"te\n' % key)
        case "nan":
            raw(
                b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"a":NaN,"b":1e999,"c":-Infinity,'
                b'"d":"\\ud800x"},"content":[]}}\n' % key
            )
        case "huge":
            text(key, "x" * (8 * 2**20))
        case "over-long":
            head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % key
            raw(head)
            for _ in range(33):
                raw(b"x" * 2**20)
            raw(b'"}]}}\n')
        case "endless-line":
            while True:
                raw(b"x" * 2**16)
        case "no-result-object":
            send({"jsonrpc": "2.0", "id": key, "result": None})
        case "content-garbage":
            result(key, {"content": [None, 5, {"type": "hologram"}, {"type": "text"}, {"type": "image"}]})
        case "empty":
            result(key, {})
        case "is-error":
            text(key, "the disk is full", isError=True)
        case "rpc-error":
            send({"jsonrpc": "2.0", "id": key, "error": {"code": -32602, "message": "Unknown tool: bad"}})
        case "rpc-error-odd":
            send({"jsonrpc": "2.0", "id": key, "error": "just words"})
        case "rpc-error-no-id":
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
        case "rpc-error-like-timeout":
            send({"jsonrpc": "2.0", "id": key, "error": {"code": -32001, "message": "upstream timed out"}})
        case "rpc-error-like-closed":
            send({"jsonrpc": "2.0", "id": key, "error": {"code": -32000, "message": "Connection closed"}})
        case "string-id":
            send({**whole, "id": str(key)})
        case "wrong-id":
            send({**whole, "id": 4711})
            text(key, "right")
        case "output-schema":
            result(key, {**body, "structuredContent": {"n": "no number"}})
        case "asks-client":
            for n, method in enumerate(
                ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "x/y")
            ):
                send({"jsonrpc": "2.0", "id": f"s{n}", "method": method, "params": {}})
            answers = [json.loads(sys.stdin.buffer.readline()) for _ in range(5)]
            kinds = sorted((a["id"], "result" if "result" in a else "error") for a in answers)
            text(key, json.dumps([kind for _, kind in kinds]))
        case "asks-endlessly":
            for n in range(5_000):
                send({"jsonrpc": "2.0", "id": f"s{n}", "method": "ping"})
            text(key, "answer")
        case "notifications":
            for n in range(20_000):
                send(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/message",
                        "params": {"level": "info", "data": n},
                    }
                )
            text(key, "answer")
        case "input-required":
            result(key, {"resultType": "input_required", "inputRequests": {}})
        case "hang" | "hang-ignores-eof" | "hang-ignores-term":
            if MODE == "hang-ignores-term":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)
        case "hang-once":
            if first_time():
                time.sleep(600)
            text(key, "second time")
        case "exit-once":
            if first_time():
                os._exit(7)
            text(key, "second time")
        case "flaky":
            if os.getpid() % 2:
                os._exit(7)
            text(key, "answer")
        case "memory":
            held = []
            while True:
                held.append(bytearray(2**22))
        case "threads":
            while True:
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        case "bad-type":
            text({"an": "object"}, "answer to nobody")
            text(key, "answer")
        case "grandchildren":
            code = "import os, signal, time; signal.signal(15, 1); os.setsid(); os.fork(); time.sleep(600)"
            for _ in range(3):
                subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)
            text(key, "answer")
        case "exit":
            sys.stderr.write("cannot go on: out of cheese\n")
            sys.stderr.flush()
            os._exit(7)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "closes-stdout":
            os.close(1)
            time.sleep(600)
        case "closes-stdin":
            os.close(0)
            text(key, "answer")
            time.sleep(600)
        case "half-answer":
            raw(b'{"jsonrpc":"2.0","id":%d,"resu' % key)
            os._exit(0)
        case "answers-and-dies":
            text(key, "answer")
            os._exit(1)
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            text(key, str(child.pid))
        case "stderr-flood":
            for _ in range(200):
                sys.stderr.write("e" * 5_000 + "\n")
            text(key, "answer")
        case _:
            text(key, "answer")


def main() -> None:
    if MODE == "start-silent":
        time.sleep(600)
    if MODE == "start-dies":
        sys.exit("ImportError: no module named cheese")
    if os.path.exists(
        "no-start"
    ):  # laid out by a task: well when it is asked for its tools, not in an episode
        sys.exit("there is no way to start here")
    if os.path.exists("silent-start"):
        time.sleep(600)
    if MODE == "start-noise":
        raw(b"\xff\xfe binary junk\nWelcome to the server!\n")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        key, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if MODE == "deaf" and method == "notifications/initialized":
            time.sleep(600)
        if key is None or method is None:
            continue
        if MODE == "modern":
            meta = params.get("_meta") or {}
            version = meta.get("io.modelcontextprotocol/protocolVersion")
            if method == "server/discover":
                info: dict[str, Any] = {
                    "io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "9"}
                }
                result(key, {"supportedVersions": ["2026-07-28"], "capabilities": {}, "_meta": info})
                continue
            if version is None:
                data = {"supported": ["2026-07-28"], "requested": params.get("protocolVersion")}
                error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
                send({"jsonrpc": "2.0", "id": key, "error": error})
                continue
        if method == "initialize":
            if MODE == "start-refuses":
                send({"jsonrpc": "2.0", "id": key, "error": {"code": -1, "message": "licence expired"}})
            elif MODE == "start-bare":
                result(key, {})
            else:
                about = {"name": "misbehaving", "version": "1"}
                result(
                    key, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
                )
        elif method == "tools/list":
            tools(key, params)
        elif method == "tools/call" and params["name"] == "ok":
            text(key, "fine")
        elif method == "tools/call":
            bad(key, params.get("arguments") or {})
        else:
            send(
                {
                    "jsonrpc": "2.0",
                    "id": key,
                    "error": {"code": -32601, "message": f"Method not found: {method}"},
                }
            )
    if MODE == "hang-ignores-eof":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


if __name__ == "__main__":
    main()
