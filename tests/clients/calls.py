"""What the gRPC tests share: tensors, and a client's stream whose replies can be waited for."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import numpy
import tritonclient.grpc as triton
from google.rpc import error_details_pb2, status_pb2

PATIENCE_S = 20


def tensor(array: numpy.ndarray, datatype: str, name: str = "x") -> triton.InferInput:
    given = triton.InferInput(name, array.shape, datatype)
    given.set_data_from_numpy(array)
    return given


def number(value: int) -> triton.InferInput:
    return tensor(numpy.array([value], dtype=numpy.int32), "INT32")


def text(value: str) -> triton.InferInput:
    return tensor(numpy.array([value.encode()], dtype=numpy.object_), "BYTES")


class Replies:
    """The replies of a stream, in their order."""

    def __init__(self) -> None:
        self._queue: queue.Queue = queue.Queue()

    def take(self, result, error) -> None:
        self._queue.put((result, error))

    def next(self) -> triton.InferResult:
        result, error = self._queue.get(timeout=PATIENCE_S)
        if error is not None:
            raise error
        return result


@contextmanager
def stream(client: triton.InferenceServerClient, **options) -> Iterator[Replies]:
    replies = Replies()
    client.start_stream(callback=replies.take, **options)
    try:
        yield replies
    finally:
        client.stop_stream()


def retry_delay_s(error: grpc.RpcError) -> float:
    """When the server asks to come again, by the details of its status."""
    metadata = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    (detail,) = status.details
    info = error_details_pb2.RetryInfo()
    assert detail.Unpack(info)
    return info.retry_delay.ToTimedelta().total_seconds()
