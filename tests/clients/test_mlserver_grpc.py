"""A real MLServer behind the node, over gRPC."""

from collections.abc import Iterator

import grpc
import numpy
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from calls import tensor
from world import World

MODEL = "doubler"


@pytest.fixture
def client(world: World) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(url=f"127.0.0.1:{world.gateway}") as client:
        yield client


@pytest.mark.parametrize(
    ("datatype", "dtype"), [("FP32", "float32"), ("INT32", "int32"), ("INT64", "int64")]
)
def test_the_model_computes(client, datatype: str, dtype: str) -> None:
    array = numpy.arange(6, dtype=dtype).reshape(2, 3)
    result = client.infer(MODEL, [tensor(array, datatype)]).as_numpy("x")
    assert result.dtype == array.dtype
    assert numpy.array_equal(result, array * 2)


def test_several_inputs_and_the_request_id(client) -> None:
    numbers = tensor(numpy.array([1.5], dtype=numpy.float32), "FP32")
    words = tensor(numpy.array(["fluß".encode()], dtype=numpy.object_), "BYTES", name="s")
    result = client.infer(MODEL, [numbers, words], request_id="seven")
    assert result.get_response().id == "seven"
    assert result.as_numpy("x").tolist() == [3.0]
    assert result.as_numpy("s").tolist() == ["fluß".encode()]


def test_metadata_readiness_and_versions(client) -> None:
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "v1")
    metadata = client.get_model_metadata(MODEL)
    assert (metadata.name, list(metadata.versions)) == (MODEL, ["v1"])
    array = numpy.array([2], dtype=numpy.int32)
    result = client.infer(MODEL, [tensor(array, "INT32")], model_version="v1")
    assert result.as_numpy("x").tolist() == [4]
    with pytest.raises(InferenceServerException, match="v9 not found") as caught:
        client.infer(MODEL, [tensor(array, "INT32")], model_version="v9")
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_an_error_of_the_model_reaches_the_client(client) -> None:
    with pytest.raises(InferenceServerException, match="cannot double BOOL") as caught:
        client.infer(MODEL, [tensor(numpy.array([True]), "BOOL")])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_stream_of_responses(world: World) -> None:
    """MLServer streams bare responses, where Triton wraps them: its client can't read these."""
    request = service_pb2.ModelInferRequest(model_name=MODEL)
    words = request.inputs.add(name="s", datatype="BYTES", shape=[1])
    words.contents.bytes_contents.append(b"one two three")
    with grpc.insecure_channel(f"127.0.0.1:{world.gateway}") as channel:
        infer = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        responses = list(infer(iter([request]), timeout=10))
    said = [response.outputs[0].contents.bytes_contents[0] for response in responses]
    assert said == [b"one", b"two", b"three"]


def test_a_deadline_is_passed_on(world: World) -> None:
    """A call that is given a deadline is told what is left of it, and keeps working."""
    with grpc.insecure_channel(f"127.0.0.1:{world.gateway}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelReadyRequest(name=MODEL)
        assert stub.ModelReady(request, timeout=10).ready


def test_a_method_that_it_does_not_have_is_its_own_error(client) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_config(MODEL)
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
