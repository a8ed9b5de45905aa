"""A real MLServer behind the node, over the Open Inference Protocol."""

import json
import urllib.error
import urllib.request

import numpy
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from world import World

MODEL = "doubler"


@pytest.fixture
def client(world: World):
    with triton.InferenceServerClient(
        url=f"127.0.0.1:{world.gateway}", connection_timeout=5, network_timeout=20
    ) as client:
        yield client


def as_json(name: str, array: numpy.ndarray, datatype: str) -> triton.InferInput:
    """MLServer 1.7 does not read binary tensors over HTTP."""
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=False)
    return tensor


def infer(client, array: numpy.ndarray, datatype: str, **extra) -> triton.InferResult:
    wanted = triton.InferRequestedOutput("x", binary_data=False)
    return client.infer(MODEL, [as_json("x", array, datatype)], outputs=[wanted], **extra)


def post(url: str, body: bytes, content_type: str = "application/json"):
    """Status and body of a POST, whatever the status."""
    request = urllib.request.Request(url, data=body, headers={"content-type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("datatype", "dtype"), [("FP32", "float32"), ("INT32", "int32"), ("INT64", "int64")]
)
def test_the_model_computes(client, datatype: str, dtype: str) -> None:
    array = numpy.arange(6, dtype=dtype).reshape(2, 3)
    result = infer(client, array, datatype).as_numpy("x")
    assert result.dtype == array.dtype
    assert numpy.array_equal(result, array * 2)


def test_several_inputs_and_the_request_id(client) -> None:
    number = as_json("x", numpy.array([1.5], dtype=numpy.float32), "FP32")
    text = as_json("s", numpy.array(["flu\u00df"], dtype=numpy.object_), "BYTES")
    wanted = [triton.InferRequestedOutput(name, binary_data=False) for name in ("x", "s")]
    result = client.infer(MODEL, [number, text], outputs=wanted, request_id="seven")
    assert result.get_response()["id"] == "seven"
    assert result.as_numpy("x").tolist() == [3.0]
    assert result.as_numpy("s").tolist() == ["flu\u00df"]


def test_a_version_of_the_model(client) -> None:
    array = numpy.array([2], dtype=numpy.int32)
    assert infer(client, array, "INT32", model_version="v1").as_numpy("x").tolist() == [4]
    with pytest.raises(InferenceServerException, match="v9 not found"):
        infer(client, array, "INT32", model_version="v9")


def test_metadata_and_readiness(client) -> None:
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "v1")
    assert not client.is_model_ready(MODEL, "v9")
    metadata = client.get_model_metadata(MODEL)
    assert (metadata["name"], metadata["versions"]) == (MODEL, ["v1"])


def test_an_error_of_the_model_reaches_the_client(client) -> None:
    with pytest.raises(InferenceServerException, match="cannot double BOOL") as caught:
        infer(client, numpy.array([True]), "BOOL")
    assert "400" in caught.value.status()


def test_binary_tensors_are_refused_by_the_server_and_not_by_the_node(client) -> None:
    tensor = triton.InferInput("x", [1], "INT32")
    tensor.set_data_from_numpy(numpy.array([1], dtype=numpy.int32), binary_data=True)
    with pytest.raises(InferenceServerException) as caught:
        client.infer(MODEL, [tensor])
    assert "422" in caught.value.status()


def test_a_compressed_request_arrives_as_it_was_sent(client) -> None:
    """MLServer can read it only if the body and its `content-encoding` arrive unchanged."""
    array = numpy.ones((10, 10), dtype=numpy.float32)
    result = infer(client, array, "FP32", request_compression_algorithm="gzip")
    assert numpy.array_equal(result.as_numpy("x"), array * 2)


def test_a_stream_of_responses(world: World) -> None:
    tensor = {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["one two three"]}
    body = json.dumps({"inputs": [tensor]}).encode()
    status, events = post(f"{world.url}/v2/models/{MODEL}/infer_stream", body)
    assert status == 200
    responses = [json.loads(line[6:]) for line in events.splitlines() if line.startswith(b"data: ")]
    assert [each["outputs"][0]["data"] for each in responses] == [["one"], ["two"], ["three"]]
    # A nested object among the parameters is outside the protocol, and is passed on all the same.
    assert all(each["parameters"]["headers"]["Ce-Modelid"] == MODEL for each in responses)


def test_the_nodes_own_errors_have_the_shape_of_the_protocol(world: World) -> None:
    status, body = post(f"{world.url}/v2/models/huge/infer", b'{"inputs": []}')
    error = json.loads(body)
    assert status == 404
    assert "huge" in error["error"]
    assert error["code"] == "model_not_found"
