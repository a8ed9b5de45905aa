"""Models and embeddings through the official SDK."""

import math

import openai
import pytest


def test_every_model_and_alias_is_listed_once(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    served = ["doubler", "faulty", "faulty-h2", "gone", "gpt-4o", "identity", "narrow", "tiny"]
    assert sorted(names) == served


def test_a_model_is_retrieved_by_name(client: openai.OpenAI) -> None:
    model = client.models.retrieve("tiny")
    assert (model.id, model.object) == ("tiny", "model")


def test_a_model_that_does_not_exist_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("huge")


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_unit_vectors_in_order(client: openai.OpenAI, encoding: str) -> None:
    texts = ["river", "stream", "river"]
    # The SDK asks for base64 by itself unless told otherwise, and decodes it.
    extra = {} if encoding == "base64" else {"encoding_format": encoding}
    reply = client.embeddings.create(model="tiny", input=texts, **extra)
    assert [item.index for item in reply.data] == [0, 1, 2]
    vectors = [item.embedding for item in reply.data]
    assert vectors[0] == vectors[2] != vectors[1]
    for vector in vectors:
        assert math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-3)
