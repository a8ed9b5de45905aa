"""What clients send that are too big to be installed here, byte for byte as they sent it once.

Recorded between guidellm, aiperf, `vllm bench serve` (without `--model`) and Vercel's AI SDK and a node. Each gets
through the node a reply of the form that it gets from the emulator itself.
"""

import http.client
import json
from typing import Any

import pytest

from world import HERE, World

RECORDED: list[dict[str, Any]] = json.loads((HERE / "recorded.json").read_text())


@pytest.mark.parametrize("request_", RECORDED, ids=[request["name"] for request in RECORDED])
def test_a_recorded_client_gets_what_it_gets_directly(
    world: World, request_: dict[str, Any]
) -> None:
    through = sent(world.gateway, request_)
    assert through["status"] == 200
    assert through == sent(world.tiny, request_)


def sent(port: int, request: dict[str, Any]) -> dict[str, Any]:
    """The reply, as far as it is the same at each time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(request["method"], request["path"], skip_accept_encoding=True)
        body = request["body"].encode()
        headers = request["headers"] | ({"Content-Length": str(len(body))} if body else {})
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        reply = connection.getresponse()
        kind, content = reply.getheader("content-type", ""), reply.read()
        # Of what is asked without a body clients read the status alone.
        return {"status": reply.status} | (told(kind, content) if body else {})
    finally:
        connection.close()


def told(kind: str, body: bytes) -> dict[str, Any]:
    """What a body says: of JSON the form, of a stream what forms its events have and how it ends."""
    if kind.startswith("text/event-stream"):
        lines = body.decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        names = [line for line in lines if line.startswith("event: ")]
        events = [json.loads(text) for text in data if text != "[DONE]"]
        ends = [data[-1] if data[-1] == "[DONE]" else form(events[-1]), names[-1:]]
        return {"kind": kind, "events": form(events), "names": sorted(set(names)), "ends": ends}
    return {"kind": kind, "form": form(json.loads(body))}


def form(value: Any) -> Any:
    """A value's type; of an object each field's, of a list those of its items."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(form(item), sort_keys=True) for item in value})
    # An answer's last number may be whole where another's is not.
    return "number" if type(value) in (int, float) else type(value).__name__
