"""HTTP as curl speaks it: both versions, and the corners that SDKs do not reach."""

import json
import subprocess

import pytest

from world import BODY_BYTES_MAX, World

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 6,
        "ignore_eos": True}
JSON = ["-H", "content-type: application/json"]
VERSIONS = ["--http1.1", "--http2-prior-knowledge"]


def curl(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = ["curl", "--silent", "--show-error", "--max-time", "20", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=30, check=False)


def succeed(*arguments: str, stdin: bytes = b"") -> bytes:
    done = curl(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def status(*arguments: str, stdin: bytes = b"") -> str:
    return succeed(*arguments, "-o", "/dev/null", "-w", "%{http_code}", stdin=stdin).decode()


@pytest.fixture
def chat_url(world: World) -> str:
    return f"{world.url}/v1/chat/completions"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_chat_over_each_version(chat_url: str, version: str) -> None:
    out = succeed(version, *JSON, "-d", json.dumps(CHAT), "-w", "\n%{http_version}", chat_url)
    body, spoken = out.decode().rsplit("\n", 1)
    assert json.loads(body)["usage"]["completion_tokens"] == 6
    assert spoken == ("2" if "http2" in version else "1.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_over_each_version(chat_url: str, version: str) -> None:
    body = json.dumps({**CHAT, "stream": True})
    head, events = succeed(version, "-i", "-N", *JSON, "-d", body, chat_url).split(b"\r\n\r\n", 1)
    assert b"content-type: text/event-stream" in head.lower()
    frames = events.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") for frame in frames[:-2])


def test_a_client_that_expects_100_continue_gets_it_before_it_sends(chat_url: str) -> None:
    body = json.dumps({**CHAT, "user": "x" * 2000})
    done = curl("--http1.1", "-v", *JSON, "-H", "Expect: 100-continue", "-d", body, chat_url)
    assert done.returncode == 0, done.stderr.decode()
    assert b"< HTTP/1.1 100 Continue" in done.stderr
    assert b"< HTTP/1.1 200 OK" in done.stderr
    assert json.loads(done.stdout)["choices"]


@pytest.mark.parametrize("expect", ["Expect: 100-continue", "Expect:"])
def test_a_body_announced_as_too_large_is_refused(chat_url: str, expect: str) -> None:
    body = json.dumps({**CHAT, "user": "x" * BODY_BYTES_MAX}).encode()
    refused = status("--http1.1", *JSON, "-H", expect, "--data-binary", "@-", chat_url, stdin=body)
    assert refused == "413"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_of_unknown_length(chat_url: str, version: str) -> None:
    """Chunked over HTTP/1.1, plain frames without a length over HTTP/2."""
    body = json.dumps({**CHAT, "user": "x" * 100_000}).encode()
    chunked = ["-H", "Transfer-Encoding: chunked"] if version == "--http1.1" else []
    upload = ["-T", "-", "-X", "POST", *JSON, *chunked]
    assert json.loads(succeed(version, *upload, chat_url, stdin=body))["choices"]


def test_a_body_of_unknown_length_is_still_limited(chat_url: str) -> None:
    """HTTP/1.1 only: over HTTP/2 curl 7.88 loses an answer that comes before it has sent all."""
    body = json.dumps({**CHAT, "user": "x" * BODY_BYTES_MAX}).encode()
    upload = ["-T", "-", "-X", "POST", "-H", "Expect:", "-H", "Transfer-Encoding: chunked"]
    assert status("--http1.1", *upload, *JSON, chat_url, stdin=body) == "413"


def test_connections_are_kept_open(chat_url: str) -> None:
    post = [*JSON, "-d", json.dumps(CHAT), "-o", "/dev/null", "-w", "%{num_connects}\n", chat_url]
    out = succeed("--http1.1", *post, "--next", "--silent", "--http1.1", *post).decode().split()
    assert out == ["1", "0"]


def test_a_client_of_http_1_0_gets_an_answer_and_a_closed_connection(chat_url: str) -> None:
    body = json.dumps({**CHAT, "stream": True})
    out = succeed("--http1.0", "-i", *JSON, "-d", body, chat_url)
    assert b"transfer-encoding" not in out.split(b"\r\n\r\n")[0].lower()
    assert out.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/v1/chat/completions", "GET", "405"),
        ("/v1/models", "GET", "200"),
        ("/v1/models", "HEAD", "200"),
        ("/v1/models", "POST", "405"),
        ("/v1/models/tiny", "GET", "200"),
        ("/v1/models/huge", "GET", "404"),
        ("/v1/models/huge", "HEAD", "404"),
        ("/v1/nothing", "POST", "404"),
        ("/", "GET", "404"),
        ("/livez", "GET", "200"),
        ("/readyz", "GET", "200"),
    ],
)
def test_status_by_path_and_method(
    world: World, version: str, path: str, method: str, expected: str
) -> None:
    how = ["-I"] if method == "HEAD" else ["-X", method]
    assert status(version, *how, world.url + path) == expected


def test_a_dotted_path_is_no_way_around(world: World) -> None:
    assert status("--path-as-is", f"{world.url}/v1/../v1/models") == "404"
    assert status("--path-as-is", f"{world.url}/v1//models") == "404"


def test_a_405_names_what_is_allowed(chat_url: str) -> None:
    head = succeed("-i", "-X", "GET", chat_url).split(b"\r\n\r\n")[0].lower()
    assert b"\r\nallow: post" in head


@pytest.mark.one_node("the load balancer refuses such headers itself")
def test_headers_above_the_limit_are_refused(chat_url: str) -> None:
    header = b"x-big: " + b"x" * 300_000
    assert status("--http1.1", "-H", "@-", chat_url, stdin=header) == "431"
