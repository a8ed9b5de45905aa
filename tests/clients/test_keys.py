"""Clients' keys, handed out and ended by command line on one node and asked for by both."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import openai
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from calls import number
from cluster import Cluster, Node
from world import World

PROMPT = [{"role": "user", "content": "Hello."}]
# Within this a change holds at every node, on a machine with a tenth of the usual speed, too.
EVERYWHERE_S = 30.0


@pytest.fixture(scope="module")
def cluster(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(world, tmp_path_factory.mktemp("keys"))
    try:
        cluster.first.ask("apply", "tenant", "acme", '{"title": "Acme"}')
        yield cluster
    finally:
        codes = cluster.stop()
    assert codes == [0, 0]


def create(node: Node, *arguments: str) -> tuple[str, str]:
    """A new key: its name and its text."""
    made = node.ask("keys", "create", "--tenant", "acme", *arguments)
    return made["key"], made["secret"]


def sdk(node: Node, text: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{node.url}/v1", api_key=text, max_retries=0, timeout=20)


def chat(client: openai.OpenAI) -> str:
    reply = client.chat.completions.create(model="tiny", messages=PROMPT, max_tokens=4)
    return reply.choices[0].message.content


def code(node: Node, text: str) -> str | None:
    """The error code that a request with this key gets; `None` if it is served."""
    try:
        with sdk(node, text) as client:
            client.models.list()
    except openai.AuthenticationError as error:
        return error.code
    return None


def until(node: Node, text: str, wanted: str | None) -> float:
    """Seconds until requests with this key end so at this node."""
    began = time.monotonic()
    while (found := code(node, text)) != wanted:
        passed = time.monotonic() - began
        assert passed < EVERYWHERE_S, f"{node.name}: {found} after {passed:.1f} s, not {wanted}"
        time.sleep(0.01)  # wait: until it is asked again
    return time.monotonic() - began


def test_a_key_made_at_one_node_is_good_at_both_and_ends_at_both(cluster: Cluster) -> None:
    name, text = create(cluster.first)
    for node in (cluster.first, cluster.second):
        until(node, text, None)
        with sdk(node, text) as client:
            assert chat(client)
    cluster.second.ask("keys", "revoke", name)
    for node in (cluster.first, cluster.second):
        until(node, text, "invalid_api_key")


def test_a_stream_that_began_before_its_key_ended_goes_on(cluster: Cluster) -> None:
    name, text = create(cluster.first)
    until(cluster.second, text, None)
    with (
        sdk(cluster.second, text) as client,
        client.chat.completions.create(
            model="tiny",
            messages=PROMPT,
            max_tokens=600,
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        chunks = iter(stream)
        next(chunks)
        cluster.first.ask("keys", "revoke", name)
        until(cluster.second, text, "invalid_api_key")
        last = [chunk for chunk in chunks if chunk.choices][-1]
        assert last.choices[0].finish_reason == "length"


def test_who_has_no_key_or_a_wrong_one_is_told_so(cluster: Cluster) -> None:
    _, text = create(cluster.first)
    until(cluster.first, text, None)
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert code(cluster.first, wrong) == "invalid_api_key"
    assert code(cluster.first, "sk-unknown") == "invalid_api_key"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{cluster.first.url}/v1/models", timeout=5)
    assert caught.value.code == 401
    assert json.load(caught.value)["error"]["code"] == "missing_api_key"


def test_a_key_is_good_for_its_models_alone(cluster: Cluster) -> None:
    _, text = create(cluster.first, "--model", "identity")
    until(cluster.first, text, None)
    with sdk(cluster.first, text) as client:
        assert [model.id for model in client.models.list()] == ["identity"]
        with pytest.raises(openai.NotFoundError) as caught:
            chat(client)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("header", ["authorization: Bearer ", "x-api-key: ", "api-key: "])
def test_curl_shows_its_key_in_any_of_the_usual_headers(cluster: Cluster, header: str) -> None:
    _, text = create(cluster.first)
    until(cluster.first, text, None)
    url = f"{cluster.first.url}/v1/models"
    command = ["curl", "-sS", "--max-time", "10", "-w", "%{stderr}%{http_code}", url]
    # Shown over standard input, as one does it where others can list processes.
    given = f'header = "{header}{text}"'
    done = subprocess.run(
        [*command, "--config", "-"], input=given, capture_output=True, text=True, check=False
    )
    assert done.stderr == "200", done.stdout


def test_triton_over_grpc_shows_its_key_as_metadata(cluster: Cluster) -> None:
    _, text = create(cluster.first)
    until(cluster.first, text, None)
    address = f"127.0.0.1:{cluster.first.gateway}"
    with triton.InferenceServerClient(url=address) as client:
        headers = {"authorization": f"Bearer {text}"}
        result = client.infer("identity", [number(7)], headers=headers)
        assert result.as_numpy("x").tolist() == [7]
        with pytest.raises(InferenceServerException) as caught:
            client.infer("identity", [number(7)])
    assert caught.value.status() == "StatusCode.UNAUTHENTICATED"


def test_the_secret_is_nowhere_but_with_who_made_it(cluster: Cluster) -> None:
    _, text = create(cluster.first)
    until(cluster.second, text, None)
    secret = text.rsplit("_", 1)[-1]
    listed = json.dumps(cluster.second.ask("get", "keys"))
    assert secret not in listed
    file = cluster.first.folder / "state.backup"
    cluster.first.ask("backup", str(file))
    kept = [file, *cluster.first.folder.glob("*.log"), *cluster.first.folder.rglob("*.data/*")]
    kept = [path for path in kept if path.is_file()]
    assert len(kept) > 4
    for path in kept:
        assert secret.encode() not in path.read_bytes(), path
        assert bytes.fromhex(secret) not in path.read_bytes(), path
