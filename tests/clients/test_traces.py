"""Spans of two nodes in two regions, their client and a real MLServer, told to a real collector."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collector import Collector, Span
from processes import Process, answers_200, free_ports
from world import World, metrics, spillway, start_emulator, start_mlserver

NODE = """
[node]
name = "{name}"
region = "region-{name}"

[[listener]]
address = "127.0.0.1:{gateway}"

[admin]
address = "127.0.0.1:{admin}"

[cluster]
id = "traces"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.region-{name}.pem"
key = "certs/{name}.region-{name}-key.pem"
prefix_key = "certs/prefix.key"

[[peer]]
name = "{peer}"
region = "region-{peer}"
address = "127.0.0.1:{peer_link}"

[[region]]
name = "region-{peer}"
rtt_ms = 1

[traces]
endpoint = "http://127.0.0.1:{collector}"
share_percent = 0
"""

REPLICA = """
[[replica]]
name = "{name}"
url = "http://127.0.0.1:{port}"
models = ["{model}"]
"""


@dataclass
class Traced:
    """Two nodes, the second of which has the replicas, and their collector."""

    collector: Collector
    gateways: tuple[int, int]
    admins: tuple[int, int]
    world: World

    def post(self, path: str, body: dict, headers: dict | None = None, node: int = 0) -> tuple[int, dict]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.gateways[node]}{path}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def chat(self, model: str, **headers: str) -> tuple[int, dict]:
        body = {"model": model, "max_tokens": 5, "messages": [{"role": "user", "content": "hi " * 40}]}
        return self.post("/v1/chat/completions", body, {name.replace("_", "-"): it for name, it in headers.items()})


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder: Path = tmp_path_factory.mktemp("traces")
    ports = free_ports()
    world = World(folder)
    collector = Collector(folder, ports)
    try:
        tiny = next(ports)
        emulator = start_emulator(world, "emulator", [tiny], ["tiny"])
        mlserver = start_mlserver(world, ports, tracing_server=f"127.0.0.1:{collector.grpc}")
        names, gateways, admins, links = ["one", "two"], *([next(ports), next(ports)] for _ in range(3))
        certify(folder, "init", "--cluster", "traces")
        for name in names:
            certify(folder, "node", "--region", f"region-{name}", "--node", name)
        replicas = REPLICA.format(name="tiny", port=tiny, model="tiny")
        replicas += REPLICA.format(name="mlserver", port=world.mlserver, model="doubler")
        replicas += REPLICA.format(name="gone", port=next(ports), model="gone")
        ready = f"http://127.0.0.1:{world.mlserver}/v2/models/doubler/ready"
        mlserver.wait_until("serving the model", lambda: answers_200(ready))
        emulator.wait_until("listening", lambda: answers_200(f"http://127.0.0.1:{tiny}/v1/models"))
        nodes: list[Process] = []
        for index, name in enumerate(names):
            text = NODE.format(
                name=name, peer=names[1 - index], gateway=gateways[index], admin=admins[index], link=links[index],
                peer_link=links[1 - index], collector=collector.http,
            )  # fmt: skip
            path = folder / f"{name}.toml"
            path.write_text(text + (replicas if name == "two" else ""))
            nodes.append(world.start(name, [spillway(), "run", "--config", str(path)]))
        traced = Traced(collector, tuple(gateways), tuple(admins), world)
        for node, admin in zip(nodes, admins, strict=True):
            node.wait_until("ready", lambda admin=admin: answers_200(f"http://127.0.0.1:{admin}/readyz"))
        nodes[0].wait_until("told of the replicas", lambda: traced.chat("tiny")[0] == 200)
        yield traced
    finally:
        codes = world.stop()
        collector.stop()
    assert codes == dict.fromkeys(codes, 0)


def certify(folder: Path, *arguments: str) -> None:
    command = [spillway(), "certs", *arguments, "--dir", "certs"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=30)


def below(spans: list[Span], parent: str) -> list[Span]:
    return [span for span in spans if span.parent == parent]


def chain(traced: Traced, parent: str) -> list[Span]:
    """Returns the spans of both nodes, from the outermost one below `parent` to the attempt."""

    def found(spans: list[Span]) -> list[Span]:
        followed: list[Span] = []
        for _ in range(4):
            inner = below(spans, followed[-1].id if followed else parent)
            assert len(inner) <= 1, inner
            if not inner:
                return []
            followed += inner
        return followed

    return traced.collector.wait_for(f"chain of four below {parent}", found)


def test_one_trace_leads_from_the_client_over_two_regions_into_the_model_server(traced: Traced) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
    sender = OTLPSpanExporter(f"http://127.0.0.1:{traced.collector.grpc}", insecure=True)
    provider.add_span_processor(SimpleSpanProcessor(sender))
    headers: dict[str, str] = {}
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
    with provider.get_tracer("test").start_as_current_span("ask") as asking:
        propagate.inject(headers)
        status, reply = traced.post("/v2/models/doubler/infer", {"inputs": [tensor]}, headers)
    assert (status, reply["outputs"][0]["data"]) == (200, [2.0, 4.0])
    provider.shutdown()

    context = asking.get_span_context()
    spans = chain(traced, f"{context.span_id:016x}")
    received, forwarded, taken, asked = spans
    assert {span.trace for span in spans} == {f"{context.trace_id:032x}"}
    assert [span.resource["service.instance.id"] for span in spans] == ["one", "one", "two", "two"]
    assert [span.kind for span in spans] == ["server", "client", "server", "client"]
    assert [forwarded.name, asked.name] == ["forward region-two", "ask mlserver"]
    assert received.resource["cloud.region"] == "region-one"
    assert taken.attributes["spillway.is_guest"] is True
    # The model server's own spans are below that of the attempt.
    own = traced.collector.wait_for("span of the model server", lambda spans: below(spans, asked.id))
    assert {span.resource["service.name"] for span in own} == {"mlserver"}
    for outer, inner in zip(spans, spans[1:], strict=False):
        # Processes read one clock, but each to its own millisecond.
        assert outer.start_ns <= inner.start_ns + 2_000_000 and inner.end_ns <= outer.end_ns + 200_000_000


def test_a_chat_is_told_by_the_conventions_of_generative_ai(traced: Traced) -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    status, reply = traced.chat("tiny", traceparent=f"00-{trace}-{parent}-01", x_request_id="chat-7")
    assert status == 200
    first, _, served, attempt = chain(traced, parent)
    for span in (first, served):
        assert span.name == "chat tiny"
        told = span.attributes
        assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "tiny")
        assert told["gen_ai.usage.input_tokens"] == reply["usage"]["prompt_tokens"]
        assert told["gen_ai.usage.output_tokens"] == reply["usage"]["completion_tokens"]
        assert (told["http.response.status_code"], told["spillway.end"]) == (200, "complete")
        assert not span.is_error
    assert first.attributes["spillway.request.id"] == "chat-7"
    assert first.attributes["spillway.compared.best_region"] == "region-two"
    assert (attempt.name, attempt.events) == ("ask tiny", ["first byte"])
    assert attempt.attributes["spillway.reason"] and attempt.attributes["spillway.expected.first_token_ms"] > 0
    # Prometheus finds the trace behind a bucket.
    assert f'# {{trace_id="{trace}"}}' in metrics(traced.admins[1], "application/openmetrics-text")


def test_without_a_share_only_what_fails_is_told(traced: Traced) -> None:
    for number in range(20):
        assert traced.chat("tiny", x_request_id=f"fine-{number}")[0] == 200
    assert traced.chat("gone", x_request_id="failed")[0] == 503

    def of_request(spans: list[Span], name: str) -> list[Span]:
        return [span for span in spans if span.attributes.get("spillway.request.id", "").startswith(name)]

    (failed, *_) = traced.collector.wait_for("failed request", lambda spans: of_request(spans, "failed"))
    assert failed.is_error and failed.attributes["error.type"] == "no_replica"
    # Spans come in order, so these would have come before.
    assert of_request(traced.collector.wait_for("spans", list), "fine") == []


def test_requests_do_not_care_whether_the_collector_is_there(traced: Traced) -> None:
    def spans(result: str) -> int:
        line = f'spillway_spans_total{{result="{result}"}} '
        return next(int(it.removeprefix(line)) for it in metrics(traced.admins[1]).splitlines() if it.startswith(line))

    node = traced.world.process("two")
    traced.collector.kill()
    sampled = f"00-{'a' * 32}-{'b' * 16}-01"
    before = spans("lost")
    assert all(traced.chat("tiny", traceparent=sampled)[0] == 200 for _ in range(5))
    node.wait_until("told of lost spans", lambda: spans("lost") > before)
    assert "the collector accepts no traces" in node.log.read_text()
    traced.collector.restart()
    sent = spans("sent")

    def is_sent_again() -> bool:
        assert traced.chat("tiny", traceparent=sampled)[0] == 200
        return spans("sent") > sent

    node.wait_until("sending again", is_sent_again)
    traced.collector.wait_for("span", lambda spans: below(spans, "b" * 16))
