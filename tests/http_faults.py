"""A streamable HTTP server that misbehaves, by its address: `/mode`. Standard library only.

Run as a script; prints its port. `/seen` answers with every request so far: verb, path, headers, body.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SESSION = "s-1"
SEEN: list[dict[str, Any]] = []
GUARD = threading.Lock()
FOREVER = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    @property
    def mode(self) -> str:
        return self.path.partition("?")[0].strip("/").partition("/")[0]

    def lower(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.body(json.dumps(value).encode(), "application/json", status, **headers)

    def body(self, data: bytes, kind: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, *parts: bytes) -> None:
        """An event stream that ends with the connection."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for part in parts:
            self.wfile.write(part)
            self.wfile.flush()

    def reset(self) -> None:
        """Break the connection so that the other end is told."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()
        self.close_connection = True

    def seen(self, body: str) -> None:
        with GUARD:
            SEEN.append({"verb": self.command, "path": self.path, "headers": self.lower(), "body": body})

    def do_GET(self) -> None:
        if self.path == "/seen":
            with GUARD:
                self.json(SEEN)
            return
        self.seen("")
        if self.mode == "resumed" and self.headers.get("last-event-id") == "e1":
            self.stream(event(text(2, "resumed")))
        elif self.mode == "resumed-never" and self.headers.get("last-event-id"):
            self.stream(b"id: e1\nretry: 1\ndata:\n\n")
        else:
            self.body(b"", "text/plain", 405)

    def do_DELETE(self) -> None:
        self.seen("")
        if self.mode == "delete-hangs":
            FOREVER.wait(30)
        self.body(b"", "text/plain", 405)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen(body.decode())
        message = json.loads(body)
        key, method = message.get("id"), message.get("method")
        if self.mode.startswith("start-"):
            self.start(key)
        elif key is None or method is None:
            self.body(b"", "text/plain", 202)
        elif method == "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "serverInfo": {"name": "f", "version": "1"},
            }
            answer = {"jsonrpc": "2.0", "id": key, "result": about}
            if self.mode == "sessionless":
                self.json(answer)
            else:
                self.json(answer, mcp_session_id=SESSION)
        elif message["params"].get("name") == "ok":
            self.json(text(key, "fine"))
        else:
            self.bad(key, message["params"])

    def start(self, key: Any) -> None:
        match self.mode:
            case "start-401":
                self.body(b'{"error": "invalid_token"}', "application/json", 401)
            case "start-404":
                self.body(b"<html>nothing here</html>", "text/html", 404)
            case "start-page":
                self.body(b"<html>Welcome</html>", "text/html")
            case "start-500":
                self.body(b"Traceback: no cheese", "text/plain", 500)
            case "start-elsewhere":
                self.body(b"", "text/plain", 307, location="http://localhost:9/mcp?token=abcd1234")
            case "start-get":
                self.body(b"", "text/plain", 302, location="/sessionless/x")
            case "start-round":
                self.body(b"", "text/plain", 307, location=self.path)
            case "start-silent":
                FOREVER.wait(30)
            case "start-reset":
                self.reset()

    def bad(self, key: Any, params: dict[str, Any]) -> None:
        answer = text(key, "answer")
        refusal = {"code": -32602, "message": "bad arguments"}
        match self.mode:
            case "headers":
                self.json(text(key, json.dumps(self.lower())))
            case "stream":
                self.stream(event(answer))
            case "stream-stays":
                self.stream(event(answer))
                FOREVER.wait(30)
            case "stream-returns":
                self.stream(b"event: message\r\nid: 7\r\ndata: " + json.dumps(answer).encode() + b"\r\n\r\n")
            case "stream-old-macs":
                self.stream(b"data:" + json.dumps(answer).encode() + b"\r\r")
            case "stream-lines":
                lines = json.dumps(answer, indent=1).encode().split(b"\n")
                self.stream(b"".join(b"data: " + line + b"\n" for line in lines) + b"\n")
            case "stream-bytes":
                self.stream(*(bytes([byte]) for byte in event(answer)))
            case "stream-unfinished":
                self.stream(event(answer).rstrip())
            case "stream-garbage":
                noise = b": ping\n\nnonsense\nid\nretry: soon\nevent: other\ndata: {}\n\n"
                self.stream(noise, b"data: {broken\n\n\xff\xfe\n", event(answer))
            case "stream-asks":
                ask = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
                note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
                self.stream(event(note), event(ask))
                answered(self.path)
                self.stream_more(event(answer))
            case "stream-wrong-id":
                self.stream(event(text(4711, "wrong")), event(answer))
            case "stream-ends":
                self.stream(b": nothing\n\n")
            case "stream-floods":
                self.stream(*([b": " + b"noise" * 200 + b"\n"] * 40_000))
            case "stream-endless":
                self.stream(b"data: ", *([b"x" * 2**20] * 40))
            case "resumed" | "resumed-never":
                self.stream(b"id: e1\nretry: 1\ndata:\n\n")
            case "pretty":
                self.body(json.dumps(answer, indent=2).encode(), "application/json; charset=utf-8")
            case "no-type":
                self.body(json.dumps(answer).encode(), "")
            case "batch":
                self.json([answer])
            case "other-id":
                self.json(text("server-error", "answer"))
            case "null-id":
                self.json({"jsonrpc": "2.0", "id": None, "error": refusal})
            case "large":
                self.json(text(key, "x" * (8 * 2**20)))
            case "too-large":
                self.json(text(key, "x" * (33 * 2**20)))
            case "deep":
                self.body(
                    b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (key, b'{"a":' * 500 + b"1" + b"}" * 500),
                    "application/json",
                )
            case "error-400":
                self.json({"jsonrpc": "2.0", "id": None, "error": refusal}, 400)
            case "error-404-own":
                self.json({"jsonrpc": "2.0", "id": key, "error": {"code": -32601, "message": "no tool"}}, 404)
            case "error-413":
                self.body(b"too much", "text/plain", 413)
            case "error-500-own":
                self.json({"jsonrpc": "2.0", "id": key, "error": {"code": -1, "message": "it broke"}}, 500)
            case "redirected" if not self.path.endswith("/there"):
                self.body(b"", "text/plain", 307, location=f"{self.path}/there")
            case "redirected":
                self.json(answer)
            case "error-401":
                self.body(f"token {self.headers['authorization']} expired".encode(), "text/plain", 401)
            case "error-404" | "sessionless":
                self.json(
                    {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "gone"}},
                    404,
                )
            case "error-500":
                self.body(b"Internal \x00 error", "text/plain", 500)
            case "error-503":
                self.body(b"", "text/plain", 503)
            case "elsewhere":
                self.body(b"", "text/plain", 307, location="http://localhost:9/?key=abcd1234")
            case "accepted":
                self.body(b"", "text/plain", 202)
            case "page":
                self.body(b"<html>Sign in</html>", "text/html")
            case "empty":
                self.body(b"", "application/json")
            case "half":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"jsonrpc":')
                self.close_connection = True
            case "reset":
                self.reset()
            case "reset-stream":
                self.stream(b": begun\n\n")
                self.reset()
            case "no-http":
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
                self.close_connection = True
            case "hang":
                FOREVER.wait(30)
            case _:
                self.json(answer)

    def stream_more(self, part: bytes) -> None:
        self.wfile.write(part)
        self.wfile.flush()


def answered(path: str) -> None:
    """Wait until the client has answered the question that `path` asked."""
    for _ in range(3000):
        with GUARD:
            if any(seen["path"] == path and '"id":"q"' in seen["body"].replace(" ", "") for seen in SEEN):
                return
        FOREVER.wait(0.01)


def text(key: Any, words: str) -> dict[str, Any]:
    """A result of one text."""
    return {"jsonrpc": "2.0", "id": key, "result": {"content": [{"type": "text", "text": words}]}}


def event(message: dict[str, Any]) -> bytes:
    """A message as a server-sent event."""
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


class Server(ThreadingHTTPServer):
    """Threads that end with the process, and clients that go away without a word."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closed its connection is no error."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201 - the port is this program's output
    server.serve_forever()
