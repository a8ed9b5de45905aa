"""Triton's own client against the emulator's identity model: tensors as bytes, both ways."""

import numpy
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from world import World

MODEL = "identity"


@pytest.fixture
def client(world: World):
    with triton.InferenceServerClient(
        url=f"127.0.0.1:{world.gateway}", connection_timeout=5, network_timeout=20
    ) as client:
        yield client


def infer(client, array: numpy.ndarray, datatype: str, *, binary: bool, **extra) -> numpy.ndarray:
    tensor = triton.InferInput("INPUT0", array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    wanted = triton.InferRequestedOutput("OUTPUT0", binary_data=binary)
    return client.infer(MODEL, [tensor], outputs=[wanted], **extra).as_numpy("OUTPUT0")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("datatype", "dtype"),
    [("FP32", "float32"), ("INT32", "int32"), ("UINT8", "uint8"), ("INT64", "int64")],
)
def test_numbers_come_back_bit_for_bit(client, datatype: str, dtype: str, binary: bool) -> None:
    array = (numpy.random.default_rng(7).random((2, 3, 5)) * 100).astype(dtype)
    echoed = infer(client, array, datatype, binary=binary)
    assert echoed.dtype == array.dtype
    assert numpy.array_equal(echoed, array)


@pytest.mark.parametrize("binary", [True, False])
def test_texts_come_back(client, binary: bool) -> None:
    array = numpy.array(["river", "", "flu\u00df", "\u6cb3"], dtype=numpy.object_)
    echoed = infer(client, array, "BYTES", binary=binary)
    # The client decodes texts in JSON and leaves those in bytes to its user.
    texts = [each.decode() if binary else each for each in echoed]
    assert texts == array.tolist()


def test_every_byte_survives_a_binary_tensor(client) -> None:
    array = numpy.arange(1 << 20, dtype=numpy.uint32).view(numpy.uint8).reshape(1, -1)[:, : 3 << 20]
    assert numpy.array_equal(infer(client, array, "UINT8", binary=True), array)


def test_the_request_id_comes_back(client) -> None:
    tensor = triton.InferInput("INPUT0", [1], "INT32")
    tensor.set_data_from_numpy(numpy.array([1], dtype=numpy.int32))
    assert client.infer(MODEL, [tensor], request_id="seven").get_response()["id"] == "seven"


def test_health_and_metadata(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.get_server_metadata()["name"]
    assert client.get_model_metadata(MODEL)["name"] == MODEL


def test_an_unknown_model_is_an_error_that_names_it(client) -> None:
    assert not client.is_model_ready("huge")
    with pytest.raises(InferenceServerException, match="huge") as caught:
        client.get_model_metadata("huge")
    assert "404" in caught.value.status()
