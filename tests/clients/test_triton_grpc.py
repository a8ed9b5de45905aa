"""Triton's own gRPC client against the emulator, through the node."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator

import grpc
import numpy
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from calls import Replies, number, retry_delay_s, stream, tensor, text
from world import BODY_BYTES_MAX, GONE, NARROW, World

MODEL = "identity"
FAULTY = "faulty-h2"


@pytest.fixture
def client(world: World) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(url=f"127.0.0.1:{world.gateway}") as client:
        yield client


@pytest.fixture
def channel(world: World) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{world.gateway}") as channel:
        yield channel


def stats(world: World) -> dict:
    """The account of the replica that can be broken."""
    url = f"http://127.0.0.1:{world.faulty}/emulator/stats"
    with urllib.request.urlopen(url, timeout=5) as response:
        return json.load(response)


def settled(world: World) -> dict:
    """The same once every request of earlier tests has ended there."""

    def is_settled() -> bool:
        now = stats(world)
        return now["received"] == now["finished"] + now["aborted"] + now["rejected"]

    world.process("faulty").wait_until("settled", is_settled, within_s=10)
    return stats(world)


def status(caught: pytest.ExceptionInfo) -> str:
    return caught.value.status().removeprefix("StatusCode.")


@pytest.mark.parametrize(
    ("datatype", "dtype"),
    [("FP32", "float32"), ("INT32", "int32"), ("UINT8", "uint8"), ("INT64", "int64")],
)
def test_numbers_come_back_bit_for_bit(client, datatype: str, dtype: str) -> None:
    array = (numpy.random.default_rng(7).random((2, 3, 5)) * 100).astype(dtype)
    echoed = client.infer(MODEL, [tensor(array, datatype)]).as_numpy("x")
    assert echoed.dtype == array.dtype
    assert numpy.array_equal(echoed, array)


def test_a_large_tensor_and_texts_come_back(client) -> None:
    array = numpy.arange(700_000, dtype=numpy.uint32).view(numpy.uint8).reshape(1, -1)
    assert numpy.array_equal(client.infer(MODEL, [tensor(array, "UINT8")]).as_numpy("x"), array)
    words = numpy.array(["river".encode(), b"", "fluß".encode()], dtype=numpy.object_)
    result = client.infer(MODEL, [tensor(words, "BYTES")], request_id="seven")
    assert result.as_numpy("x").tolist() == words.tolist()
    assert result.get_response().id == "seven"


def test_health_and_metadata(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata().name == "spillway"
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "1")
    assert client.get_model_metadata(MODEL).name == MODEL
    assert client.get_model_config(MODEL).config.name == MODEL
    assert client.get_inference_statistics(MODEL).model_stats[0].name == MODEL


def test_an_alias_is_served_by_its_model(client) -> None:
    """The node serves `gpt-4o` as `tiny`, which its replicas know only by that name."""
    result = client.infer("gpt-4o", [number(7)])
    assert result.get_response().model_name == "tiny"
    with stream(client) as replies:
        for value in range(3):
            client.async_stream_infer("gpt-4o", [number(value)])
            response = replies.next()
            assert response.get_response().model_name == "tiny"
            assert response.as_numpy("x").tolist() == [value]


def test_requests_in_the_background(client) -> None:
    replies = Replies()
    for value in range(20):
        client.async_infer(MODEL, [number(value)], replies.take)
    values = [int(replies.next().as_numpy("x")[0]) for _ in range(20)]
    assert sorted(values) == list(range(20))


def test_a_stream_answers_each_request_while_it_is_open(client) -> None:
    with stream(client) as replies:
        for value in range(10):
            client.async_stream_infer(MODEL, [number(value)], request_id=str(value))
            reply = replies.next()
            assert reply.as_numpy("x").tolist() == [value]
            assert reply.get_response().id == str(value)


def test_a_stream_of_tokens_comes_one_by_one(client) -> None:
    with stream(client) as replies:
        client.async_stream_infer("tiny", [text("Tell me.")], parameters={"max_tokens": 12})
        said = [replies.next() for _ in range(12)]
    words = [reply.as_numpy("text_output")[0].decode() for reply in said]
    assert "".join(words).strip()
    finals = [
        reply.get_response().parameters["triton_final_response"].bool_param for reply in said
    ]
    assert finals == [False] * 11 + [True]


def test_one_bad_request_does_not_end_its_stream(client) -> None:
    with stream(client) as replies:
        client.async_stream_infer(MODEL, [number(1)])
        assert replies.next().as_numpy("x").tolist() == [1]
        client.async_stream_infer("huge", [number(2)])
        with pytest.raises(InferenceServerException, match="huge"):
            replies.next()
        client.async_stream_infer(MODEL, [number(3)])
        assert replies.next().as_numpy("x").tolist() == [3]


def test_the_asyncio_client_works_too(world: World) -> None:
    async def run() -> None:
        async with triton_aio.InferenceServerClient(url=f"127.0.0.1:{world.gateway}") as client:
            assert await client.is_server_ready()
            calls = [client.infer(MODEL, [number(value)]) for value in range(30)]
            values = [result.as_numpy("x")[0] for result in await asyncio.gather(*calls)]
            assert values == list(range(30))

            async def requests():
                for value in range(5):
                    yield {"model_name": MODEL, "inputs": [number(value)]}

            seen = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                seen.append(int(result.as_numpy("x")[0]))
            assert seen == list(range(5))

    asyncio.run(run())


def test_unknown_models_and_versions_are_not_found(client) -> None:
    with pytest.raises(InferenceServerException, match="huge") as caught:
        client.infer("huge", [number(1)])
    assert status(caught) == "NOT_FOUND"
    with pytest.raises(InferenceServerException, match="huge"):
        client.is_model_ready("huge")
    with pytest.raises(InferenceServerException) as caught:
        client.infer(MODEL, [number(1)], model_version="9")
    assert status(caught) == "NOT_FOUND"


def test_methods_that_manage_one_server_are_not_offered(client) -> None:
    for call in [client.get_model_repository_index, client.get_trace_settings]:
        with pytest.raises(InferenceServerException, match="that server") as caught:
            call()
        assert status(caught) == "UNIMPLEMENTED"


def test_a_compressed_message_is_refused_in_words_the_client_knows(client) -> None:
    # A short message would not be compressed whatever the client is told.
    zeros = tensor(numpy.zeros((1000,), dtype=numpy.uint8), "UINT8")
    with pytest.raises(InferenceServerException, match="compressed") as caught:
        client.infer(MODEL, [zeros], compression_algorithm="gzip")
    assert status(caught) == "UNIMPLEMENTED"
    assert client.infer(MODEL, [number(1)]).as_numpy("x").tolist() == [1]


def test_a_message_above_the_limit_is_refused(client) -> None:
    array = numpy.zeros((BODY_BYTES_MAX + 1,), dtype=numpy.uint8)
    with pytest.raises(InferenceServerException, match="larger") as caught:
        client.infer(MODEL, [tensor(array, "UINT8")])
    assert status(caught) == "RESOURCE_EXHAUSTED"


def test_a_deadline_is_kept_and_frees_the_replica(client, faulty: World) -> None:
    before = settled(faulty)
    faulty.set_fault({"kind": "hang"})
    with pytest.raises(InferenceServerException) as caught:
        client.infer(FAULTY, [number(1)], client_timeout=0.3)
    assert status(caught) == "DEADLINE_EXCEEDED"
    faulty.process("faulty").wait_until(
        "free again", lambda: stats(faulty)["aborted"] == before["aborted"] + 1, within_s=5
    )
    assert stats(faulty)["received"] == before["received"] + 1


def test_a_replica_that_is_not_there_is_unavailable(client) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer(GONE, [number(1)])
    assert status(caught) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("code", "expected"), [(503, "UNAVAILABLE"), (500, "INTERNAL"), (429, "RESOURCE_EXHAUSTED")]
)
def test_a_replicas_own_status_is_passed_on(
    client, faulty: World, code: int, expected: str
) -> None:
    faulty.set_fault({"kind": "status", "code": code})
    with pytest.raises(InferenceServerException, match="on demand") as caught:
        client.infer(FAULTY, [number(1)])
    assert status(caught) == expected


@pytest.mark.parametrize(
    "fault", [{"kind": "cut", "after_events": 3}, {"kind": "stall", "after_events": 3}]
)
def test_a_stream_that_breaks_off_ends_with_an_error(client, faulty: World, fault: dict) -> None:
    faulty.set_fault(fault)
    with stream(client) as replies:
        client.async_stream_infer(FAULTY, [text("Go.")], parameters={"max_tokens": 100})
        for _ in range(3):
            replies.next()
        with pytest.raises(InferenceServerException) as caught:
            replies.next()
    assert status(caught) == "UNAVAILABLE"


def test_leaving_a_stream_ends_the_work_on_it(client, faulty: World) -> None:
    before = settled(faulty)
    with stream(client) as replies:
        client.async_stream_infer(FAULTY, [text("Go.")], parameters={"max_tokens": 2000})
        replies.next()
        client.stop_stream(cancel_requests=True)
    faulty.process("faulty").wait_until(
        "free again", lambda: stats(faulty)["aborted"] == before["aborted"] + 1, within_s=5
    )


def test_who_is_turned_away_learns_when_to_come_again(channel, faulty: World) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request = service_pb2.ModelReadyRequest(name=NARROW)
    before = settled(faulty)["received"]
    faulty.set_fault({"kind": "hang"})
    infer = service_pb2.ModelInferRequest(model_name=NARROW)
    held = stub.ModelInfer.future(infer, timeout=20)
    faulty.process("faulty").wait_until(
        "asked", lambda: stats(faulty)["received"] == before + 1, within_s=5
    )
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelReady(request, timeout=10)
    held.cancel()
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    # Whole seconds, with some chance, so that not all come back at once.
    assert retry_delay_s(caught.value) in (1.0, 2.0)


def test_metadata_passes_both_ways(channel, world: World) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request = service_pb2.ModelReadyRequest(name=MODEL)
    metadata = [("x-request-id", "mine-1"), ("x-token-bin", b"\x00\xff")]
    response, call = stub.ModelReady.with_call(request, metadata=metadata, timeout=10)
    assert response.ready
    seen = dict(call.initial_metadata())
    assert seen["x-request-id"] == "mine-1"
    assert seen["x-spillway-replica"].startswith("tiny-")
    assert seen["x-emulator-replica"] in {"0", "1", "2", "3"}


def test_the_health_protocol_is_spoken(channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ["", "inference.GRPCInferenceService"]:
        health = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="other.Service"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Watch(health_pb2.HealthCheckRequest(), timeout=10))
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
