"""A real collector of traces, and what it passes on: OTLP in, OTLP out, read by OpenTelemetry's own classes."""

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import rotel
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.trace.v1 import trace_pb2

from processes import Process

TOLD_S = 30.0


@dataclass(frozen=True)
class Span:
    """One span as it came."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    # Of the process that tells it.
    resource: dict
    attributes: dict
    events: list[str]
    start_ns: int
    end_ns: int
    is_error: bool


class Collector:
    """A Rotel that takes spans over HTTP from nodes and over gRPC from others, and the place to which it sends them on."""

    def __init__(self, folder: Path, ports: Iterator[int]) -> None:
        self.folder = folder
        self.grpc, self.http, told = next(ports), next(ports), next(ports)
        self._spans: list[Span] = []
        self._changed = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", told), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._command = [
            str(Path(rotel.__file__).with_name("rotel-agent")), "start",
            "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc}",
            "--otlp-http-endpoint", f"127.0.0.1:{self.http}",
            "--exporter", "otlp", "--otlp-exporter-protocol", "http",
            "--otlp-exporter-endpoint", f"http://127.0.0.1:{told}",
            "--batch-timeout", "100ms",
        ]  # fmt: skip
        self.process = self._start()

    def _start(self) -> Process:
        return Process("collector", self._command, self.folder)

    def kill(self) -> None:
        self.process.kill()

    def restart(self) -> None:
        self.process = self._start()

    def stop(self) -> None:
        self.process.stop()
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, what: str, found: Callable[[list[Span]], list[Span]]) -> list[Span]:
        """Returns what `found` finds among all spans once that is something."""
        with self._changed:
            seen = self._changed.wait_for(lambda: found(self._spans), TOLD_S)
            told = [(span.resource.get("service.name"), span.name) for span in self._spans]
            assert seen, f"no {what} among {told}\n{self.process.tail()}"
            return seen

    def _handler(self) -> type:
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers["content-encoding"] == "gzip":
                    body = gzip.decompress(body)
                collector._take(otlp.ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _take(self, request: otlp.ExportTraceServiceRequest) -> None:
        with self._changed:
            for group in request.resource_spans:
                resource = attributes(group.resource.attributes)
                for scope in group.scope_spans:
                    self._spans += [span_of(span, resource) for span in scope.spans]
            self._changed.notify_all()


def span_of(span: trace_pb2.Span, resource: dict) -> Span:
    return Span(
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        resource=resource,
        attributes=attributes(span.attributes),
        events=[event.name for event in span.events],
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        is_error=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
    )


def attributes(pairs) -> dict:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}
