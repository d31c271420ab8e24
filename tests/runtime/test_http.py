"""Addresses, headers and secrets of servers that run elsewhere; event streams; what a message answers."""

from __future__ import annotations

import asyncio
import json
import shlex
import ssl
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import StartError
from atlas_gym.runtime import http_client
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.http import HttpRuntime
from atlas_gym.runtime.http_headers import Endpoint, by_hand, resolve, unset, variables
from atlas_gym.runtime.http_params import header_value, headers, marks, results
from atlas_gym.runtime.http_stream import Event, Events, TooLong, read
from atlas_gym.runtime.install import digest, install, unavailable
from atlas_gym.runtime.link import Runtime
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.mixed import ByServer
from atlas_gym.runtime.workspace import Workspace


def manifest(url: str = "https://example.com/mcp", **headers: str) -> Manifest:
    return Manifest(
        name="far",
        description="A server that runs elsewhere.",
        registry="user",
        state="memory",
        state_bound="import",
        url=url,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def test_variables_are_filled_in_when_asked_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = manifest(
        "https://user:pass-word@example.com/mcp?key=${QUERY_KEY}&v=2",
        Authorization="Bearer ${TOKEN}",
        X_Both="literal-part ${env:TOKEN}",
        X_Key="a literal-key",
        User_Agent="plain-agent",
    )
    assert variables(made) == ("QUERY_KEY", "TOKEN")
    assert unset(made) == ("QUERY_KEY", "TOKEN")
    monkeypatch.setenv("TOKEN", "s3cret-token")
    monkeypatch.setenv("QUERY_KEY", "s3cret-query")
    endpoint = resolve(made)
    assert endpoint.url == "https://user:pass-word@example.com/mcp?key=s3cret-query&v=2"
    assert endpoint.headers == {
        "authorization": "Bearer s3cret-token",
        "x-both": "literal-part s3cret-token",
        "x-key": "a literal-key",
        "user-agent": "plain-agent",
    }
    assert endpoint.shown == "https://example.com/mcp"
    said = repr(endpoint) + repr(made) + by_hand(made)
    assert not any(secret in said for secret in ("s3cret", "literal", "${QUERY_KEY}", "pass-word@"))
    assert '"Authorization: Bearer ${TOKEN}"' in shlex.split(by_hand(made), posix=False)
    told = "x s3cret-token y s3cret-query z literal-key pass-word a literal-key plain-agent 2"
    assert endpoint.redact(told) == "x *** y *** z *** *** *** plain-agent 2"


def test_secrets_are_found_in_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", 'quo"ted\\')
    endpoint = resolve(manifest(Authorization="Bearer ${TOKEN}"))
    line = json.dumps({"said": 'Bearer quo"ted\\'}).encode()
    assert endpoint.redact_line(line) == b'{"said": "Bearer ***"}'


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (manifest(Authorization="Bearer ${NOT_SET_HERE}"), "NOT_SET_HERE in your mcp.json, which is not set"),
        (manifest("ftp://example.com/x?key=abcd"), "'ftp://example.com/x' is no http:// or https://"),
        (manifest("nonsense"), "is no http:// or https:// address"),
        (
            manifest(Bad_Name__="x").model_copy(update={"headers": {"no good": "x"}}),
            "header 'no good' cannot",
        ),
        (manifest(X_Key="two\nlines-of-secret"), "header 'X-Key' cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_an_error_without_values(made: Manifest, words: str) -> None:
    with pytest.raises(StartError) as caught:
        resolve(made)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "abcd" not in str(caught.value)


def test_a_url_of_an_mcp_json_can_be_used_and_keeps_its_headers_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOKEN", "s3cret-token")
    file = tmp_path / "mcp.json"

    def server(url: str) -> Server:
        entry = {"url": url, "headers": {"Authorization": "Bearer ${TOKEN}", "X-Number": 3}}
        file.write_text(json.dumps({"mcpServers": {"far": entry}}))
        return Catalog.load([], file).get("far")

    one = server("https://example.com/one")
    assert one.manifest.headers == {"Authorization": "Bearer ${TOKEN}", "X-Number": "3"}
    assert one.manifest.protocol == "auto"
    assert unavailable(one) == ""
    assert install(one).command == ()
    assert digest(one) != digest(server("https://example.com/two"))
    assert "s3cret" not in repr(one) + one.manifest.model_dump_json() + str(install(one))
    monkeypatch.delenv("TOKEN")
    assert unavailable(one) == "Its entry names the variable TOKEN, which is not set. Set it."


def cut(*chunks: bytes, limit: int = 1000) -> list[Event]:
    events = Events(limit)
    return [event for chunk in chunks for event in events.feed(chunk)] + events.end()


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"data: a\n\n", [Event(b"a")]),
        (b"data:a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\rdata:  b\r\r", [Event(b"a"), Event(b" b")]),
        (b"event: message\ndata: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"id: 1\nretry: 20\ndata\n\n", [Event(b"", "1", 20)]),
        (b": comment\n\nevent: ping\ndata: x\n\n", [Event(b"")]),
        (b"retry: -1\nretry: x\nfield: y\n\n", []),
        (b"data: a", [Event(b"a")]),
        (b"data: a\n", [Event(b"a")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_events_however_they_are_cut(stream: bytes, found: list[Event]) -> None:
    assert cut(stream) == found
    assert cut(*(bytes([byte]) for byte in stream)) == found
    for size in (2, 3, 5):
        assert cut(*(stream[i : i + size] for i in range(0, len(stream), size))) == found


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: 0123456789\n" * 10])
def test_an_event_has_a_limit(stream: bytes) -> None:
    with pytest.raises(TooLong):
        cut(stream, limit=90)
    with pytest.raises(TooLong):
        cut(*(bytes([byte]) for byte in stream), limit=90)


@pytest.mark.parametrize(
    ("body", "alone", "answers"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "result": {}}', False, True),
        ('{"jsonrpc": "2.0", "id": "7", "result": {}}', False, True),
        ('{"jsonrpc": "2.0", "id": null, "error": {}}', False, True),
        ('{"jsonrpc": "2.0", "id": 8, "result": {}}', False, False),
        ('{"jsonrpc": "2.0", "id": 8, "result": {}}', True, True),
        ('[{"jsonrpc": "2.0", "method": "x"}, {"jsonrpc": "2.0", "id": 7, "result": {}}]', False, True),
        ('{"jsonrpc": "2.0", "id": 7, "method": "ping", "result": {}}', True, False),
        ('{"id": 7}', True, False),
        ("[7, null]", True, False),
        ("null", True, False),
        ("<html>", True, False),
        ("", True, False),
        ('{"jsonrpc": "2.0", "id": 7, "result": {"a": ' + "[" * 5000 + "]" * 5000 + "}}", True, True),
        ('{"jsonrpc": "2.0", "id": 7, "result": "' + "x" * 100_000 + '"}', False, True),
        ('{"jsonrpc": "2.0", "method": "x", "params": "' + "x" * 100_000 + '"}', False, False),
    ],
)
def test_what_answers_a_request(body: str, alone: bool, answers: bool) -> None:
    found = read(body.encode(), 7, alone=alone)
    assert found.answers is answers
    assert found.line.count(b"\n") == 1
    if isinstance(found.value, dict) and answers:
        assert found.value["id"] in (7, "7")


def test_line_breaks_between_the_parts_of_a_message_go() -> None:
    found = read(b'{"jsonrpc": "2.0",\r\n "id": 7,\n "result": {"a": "\\n"}}', 7, alone=False)
    assert json.loads(found.line) == {"jsonrpc": "2.0", "id": 7, "result": {"a": "\n"}}


def test_arguments_that_a_schema_wants_in_headers() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {
                "properties": {"n": {"type": "integer", "x-mcp-header": "N"}},
                "x-mcp-header": "no good",
            },
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "other": {"type": "string", "x-mcp-header": 5},
            "items": {"items": {"x-mcp-header": "Never"}},
        },
        "x-mcp-header": "Top",
    }
    found = marks(schema)
    assert found == {("region",): "Region", ("inner", "n"): "N", ("flag",): "Flag"}
    given = {"region": "Zürich", "inner": {"n": 10**5000}, "flag": False, "other": "x"}
    assert headers(found, given) == {"mcp-param-region": "=?base64?WsO8cmljaA==?=", "mcp-param-flag": "false"}
    assert headers(found, {"region": None, "inner": 3}) == {}
    assert marks(None) == marks({"properties": [1]}) == {}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (" edge", "=?base64?IGVkZ2U=?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ],
)
def test_what_a_header_carries(text: str, sent: str) -> None:
    assert header_value(text) == sent


def test_results_in_a_body_of_either_sort() -> None:
    message = b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}'
    assert list(results(message, stream=False)) == [{"tools": []}]
    assert list(results(b"data: {}\n\ndata: " + message + b"\n\n", stream=True)) == [{"tools": []}]
    assert list(results(b"<html>", stream=False)) == []


def test_certificates_are_checked() -> None:
    trust = http_client._trust()
    assert (trust.verify_mode, trust.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_server_without_url_is_not_reached_over_http(install: Any, episode: Workspace) -> None:
    with pytest.raises(StartError, match="has no url"):
        asyncio.run(HttpRuntime().start(install(["true"]), episode))


def test_the_manifest_alone_decides_which_runtime_starts_a_server(install: Any, episode: Workspace) -> None:
    ended: list[str] = []

    class Said(MemoryRuntime):
        def __init__(self, name: str) -> None:
            super().__init__({})
            self.name = name

        async def start(self, installation: Any, workspace: Workspace) -> Any:
            raise StartError(self.name)

        async def aclose(self) -> None:
            ended.append(self.name)

    runtime: Runtime = ByServer(Said("near"), Said("far"))

    async def main() -> None:
        far = install([], url="http://127.0.0.1:1/mcp")
        for expected, made in (("near", install(["true"])), ("far", far)):
            with pytest.raises(StartError, match=expected):
                await runtime.start(made, episode)
        await runtime.aclose()

    asyncio.run(main())
    assert (runtime.name, ended) == ("near", ["near", "far"])


def test_an_endpoint_without_secrets_changes_nothing() -> None:
    endpoint = Endpoint("http://a/", (), "http://a/", {}, ())
    assert endpoint.redact_line(b'{"a": "b"}') == b'{"a": "b"}'
