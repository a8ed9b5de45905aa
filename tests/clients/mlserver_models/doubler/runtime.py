"""A small model for MLServer: doubles numbers and returns texts as they came."""

from collections.abc import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput


class Doubler(MLModel):
    """Answers each input with an output of the same name, datatype and shape."""

    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = [answer(tensor) for tensor in payload.inputs]
        return InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=outputs
        )

    async def predict_stream(
        self, payloads: AsyncIterator[InferenceRequest]
    ) -> AsyncIterator[InferenceResponse]:
        """One response for each word of the first text."""
        payload = [each async for each in payloads][0]
        for word in StringCodec.decode_input(payload.inputs[0])[0].split():
            output = StringCodec.encode_output("word", [word])
            yield InferenceResponse(model_name=self.name, outputs=[output])


def answer(tensor: RequestInput) -> ResponseOutput:
    if tensor.datatype == "BYTES":
        output = StringCodec.encode_output(tensor.name, StringCodec.decode_input(tensor))
    elif tensor.datatype in ("FP32", "INT32", "INT64"):
        output = NumpyCodec.encode_output(tensor.name, NumpyCodec.decode_input(tensor) * 2)
    else:
        raise InferenceError(f"cannot double {tensor.datatype}")
    # The codecs make a column of a vector.
    output.shape = tensor.shape
    return output
