"""Models and embeddings through the official SDK."""

import math
import time

import openai
import pytest

from processes import answers_200
from world import World


def test_every_model_and_alias_is_listed_once(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    served = ["doubler", "faulty", "faulty-h2", "gone", "gpt-4o", "identity", "narrow", "tiny"]
    assert sorted(names) == served


def test_who_takes_the_first_model_gets_one_with_its_root(client: openai.OpenAI) -> None:
    # As `vllm bench serve` without `--model` does; `gpt-4o`, an alias, must not come first.
    models = list(client.models.list())
    assert models[0].id == "doubler" and models[-1].id == "gpt-4o"
    assert all(model.model_extra and model.model_extra["root"] for model in models)
    assert models[-1].model_extra["root"] == "tiny"


def test_the_longest_prompt_is_told_as_replicas_tell_it(client: openai.OpenAI) -> None:
    # The node reads their pages by itself, soon after its start.
    due = time.monotonic() + 10
    while True:
        told = [client.models.retrieve(name).model_extra or {} for name in ["tiny", "gpt-4o"]]
        lengths = [extra.get("max_model_len") for extra in told]
        if None not in lengths:
            break
        assert time.monotonic() < due, told
        time.sleep(0.05)  # wait: until the pages were read
    assert lengths[0] == lengths[1] > 1000


def test_models_are_described_as_vllm_describes_them(sdk: openai.OpenAI) -> None:
    # The node reads the emulator's page by itself, soon after its start.
    due = time.monotonic() + 10
    while "permission" not in (model := sdk.models.retrieve("tiny").to_dict()):
        assert time.monotonic() < due, model
        time.sleep(0.05)  # wait: until the page was read
    assert model["root"] == "tiny"
    assert model["parent"] is None
    assert model["max_model_len"] == 32_768
    assert model["permission"][0]["allow_sampling"]


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_is_asked_for_as_benchmarks_do(world: World, path: str) -> None:
    assert answers_200(f"{world.url}{path}")


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
