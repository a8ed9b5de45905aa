"""A server of gRPC's own library, with settings that servers have in the field, behind the node."""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from processes import Process, answers_200, free_ports
from world import spillway

SERVICE = "/test.Service"
STREAMS_MAX = 4
LONG = 17_000
BIG = [("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 1 << 20)]


class Handler(grpc.GenericRpcHandler):
    """Answers with long trailers, or keeps a stream open until its client ends it."""

    def service(self, details):
        if details.method.endswith("/Fail"):
            return grpc.unary_unary_rpc_method_handler(self.fail)
        if details.method.endswith("/Hold"):
            return grpc.stream_stream_rpc_method_handler(lambda requests, _: requests)
        return None

    def fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", request * LONG),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "m" * LONG)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of the node and of the server behind it."""
    options = [*BIG, ("grpc.max_concurrent_streams", STREAMS_MAX)]
    server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[Handler()], options=options)
    behind = server.add_insecure_port("127.0.0.1:0")
    server.start()
    free = free_ports()
    gateway, admin = next(free), next(free)
    folder: Path = tmp_path_factory.mktemp("grpc")
    (folder / "spillway.toml").write_text(
        f"""
[node]
workers = 1
[auth]
mode = "none"
[[listener]]
address = "127.0.0.1:{gateway}"
[admin]
address = "127.0.0.1:{admin}"
[[route]]
name = "own"
path_prefix = "{SERVICE}"
protocol = "grpc"
[[replica]]
name = "server"
url = "http://127.0.0.1:{behind}"
protocol = "http2"
models = ["tiny"]
health = {{ check = "tcp" }}
"""
    )
    node = Process("node", [spillway(), "run", "--config", "spillway.toml"], folder)
    try:
        node.wait_until("ready", lambda: answers_200(f"http://127.0.0.1:{admin}/readyz"))
        yield gateway, behind
    finally:
        node.stop()
        server.stop(None)


def failure(port: int) -> tuple:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=BIG) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{SERVICE}/Fail")(b"d", timeout=20)
        error = caught.value
        trailers = {name: value for name, value in error.trailing_metadata() if name.endswith("-bin")}
        return error.code(), error.details(), trailers


def test_a_long_status_is_the_same_as_directly(ports: tuple[int, int]) -> None:
    through, direct = failure(ports[0]), failure(ports[1])
    assert through == direct
    assert (len(through[1]), len(through[2]["grpc-status-details-bin"])) == (LONG, LONG)


def test_open_streams_beyond_the_server_s_limit_leave_room_for_others(ports: tuple[int, int]) -> None:
    done = threading.Event()

    def hold(channel: grpc.Channel) -> Callable[[], bytes]:
        def messages() -> Iterator[bytes]:
            yield b"first"
            done.wait()

        call = channel.stream_stream(f"{SERVICE}/Hold")(messages(), timeout=30)
        return lambda: next(call)

    with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        calls = [hold(channel) for _ in range(2 * STREAMS_MAX + 1)]
        try:
            assert [call() for call in calls] == [b"first"] * len(calls)
            assert failure(ports[0])[0] == grpc.StatusCode.INVALID_ARGUMENT
        finally:
            done.set()
