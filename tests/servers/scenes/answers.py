"""Every kind of call through the gateway, compared with the same call sent to a server."""

import random
import time
from collections.abc import Callable

import openai

from fleet import POLL_S, TURNS, Fleet
from load import text
from page import read
from report import Section

CALLS = 8
TOKENS = 24
FREE_WITHIN_S = 30.0
RUNNING = "vllm:num_requests_running"
# Far more than can be generated until the client leaves.
LONG_TOKENS = 1_900
# An answer is then exactly as long as was allowed, and the same each time.
EXACT = {"ignore_eos": True}
# The text of the answer and the replica that it came from, empty without a gateway.
Answer = tuple[str, str]
Call = Callable[[openai.OpenAI, str], Answer]


def play(fleet: Fleet) -> Section:
    section = Section("Answers", ["call", "calls", "well-formed", "same text as asked directly",
                                  "replicas that served"])
    with sdk(fleet.url) as through, sdk(fleet.servers[0].url) as direct:
        for name, call in KINDS.items():
            compare(section, name, call, through, direct)
        errors(section, through)
        leave(section, fleet, through)
    return section


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=30)


def compare(
    section: Section, name: str, call: Call, through: openai.OpenAI, direct: openai.OpenAI
) -> None:
    # Other prompts for each kind and each run of it, and the same ones on both ways.
    prompts = [text(random.Random(f"{name} {number}"), 20) for number in range(CALLS)]
    well_formed, same, replicas = 0, 0, set()
    for prompt in prompts:
        try:
            answer, replica = call(through, prompt)
        except (AssertionError, openai.OpenAIError) as error:
            section.check(False, f"{name}: {type(error).__name__}: {error}")
            continue
        well_formed += 1
        replicas.add(replica)
        same += answer == call(direct, prompt)[0]
    section.add(name, CALLS, well_formed, same, ", ".join(sorted(replicas)))
    section.check(same == CALLS, f"{name}: {CALLS - same} answers differ from the server's own")
    section.check(len(replicas) == 2, f"{name}: only {replicas} served, of two in turn")


def chat(client: openai.OpenAI, prompt: str) -> Answer:
    raw = client.chat.completions.with_raw_response.create(**of_chat(prompt))
    reply = raw.parse()
    assert reply.object == "chat.completion", reply
    assert reply.choices[0].finish_reason == "length", reply
    assert reply.usage and reply.usage.completion_tokens == TOKENS, reply
    return reply.choices[0].message.content or "", replica_of(raw)


def streamed_chat(client: openai.OpenAI, prompt: str) -> Answer:
    """With usage asked for."""
    asked = of_chat(prompt) | {"stream": True, "stream_options": {"include_usage": True}}
    raw = client.chat.completions.with_raw_response.create(**asked)
    *chunks, last = raw.parse()
    assert not last.choices and last.usage and last.usage.completion_tokens == TOKENS, last
    return joined(chunks), replica_of(raw)


def plain_streamed_chat(client: openai.OpenAI, prompt: str) -> Answer:
    """Without: the usage that the gateway asks for on its own must not show."""
    raw = client.chat.completions.with_raw_response.create(**of_chat(prompt), stream=True)
    chunks = list(raw.parse())
    assert all(chunk.choices and not chunk.usage for chunk in chunks), chunks
    return joined(chunks), replica_of(raw)


def completion(client: openai.OpenAI, prompt: str) -> Answer:
    raw = client.completions.with_raw_response.create(**of_completion(prompt))
    reply = raw.parse()
    assert reply.object == "text_completion", reply
    assert reply.usage and reply.usage.completion_tokens == TOKENS, reply
    return reply.choices[0].text, replica_of(raw)


def streamed_completion(client: openai.OpenAI, prompt: str) -> Answer:
    raw = client.completions.with_raw_response.create(**of_completion(prompt), stream=True)
    chunks = list(raw.parse())
    assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
    return "".join(chunk.choices[0].text for chunk in chunks), replica_of(raw)


def response(client: openai.OpenAI, prompt: str) -> Answer:
    raw = client.responses.with_raw_response.create(**of_response(prompt))
    reply = raw.parse()
    assert reply.object == "response", reply
    assert reply.usage and reply.usage.output_tokens == TOKENS, reply
    return reply.output_text, replica_of(raw)


def streamed_response(client: openai.OpenAI, prompt: str) -> Answer:
    raw = client.responses.with_raw_response.create(**of_response(prompt), stream=True)
    events = list(raw.parse())
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created", kinds
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text, deltas
    return "".join(deltas), replica_of(raw)


KINDS: dict[str, Call] = {
    "chat": chat,
    "chat, streamed with usage": streamed_chat,
    "chat, streamed without usage": plain_streamed_chat,
    "completion": completion,
    "completion, streamed": streamed_completion,
    "response": response,
    "response, streamed": streamed_response,
}


def of_chat(prompt: str) -> dict:
    messages = [{"role": "user", "content": prompt}]
    common = {"max_tokens": TOKENS, "temperature": 0, "extra_body": EXACT}
    return {"model": TURNS, "messages": messages} | common


def of_completion(prompt: str) -> dict:
    common = {"max_tokens": TOKENS, "temperature": 0, "extra_body": EXACT}
    return {"model": TURNS, "prompt": prompt} | common


def of_response(prompt: str) -> dict:
    common = {"max_output_tokens": TOKENS, "temperature": 0, "extra_body": EXACT}
    return {"model": TURNS, "input": prompt} | common


def joined(chunks: list) -> str:
    assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def replica_of(raw) -> str:
    return raw.headers.get("x-spillway-replica", "")


def errors(section: Section, through: openai.OpenAI) -> None:
    """What clients did wrong comes back as they know it from the server."""
    too_long = text(random.Random(1), 5_000)
    try:
        through.chat.completions.create(**of_chat(too_long))
        section.check(False, "a prompt longer than the context was accepted")
    except openai.BadRequestError as error:
        section.notes.append(f"A prompt longer than the context: 400, `{error.message[:100]}`")
    try:
        through.chat.completions.create(**of_chat("Hello.") | {"model": "huge"})
        section.check(False, "an unknown model was accepted")
    except openai.NotFoundError as error:
        section.notes.append(f"An unknown model: 404, `{error.message[:100]}`")


def leave(section: Section, fleet: Fleet, through: openai.OpenAI) -> None:
    """A client that leaves its stream frees the server."""
    # Not its count of aborted requests: those whose client left are not in there.
    before = total(fleet, "vllm:generation_tokens_total")
    asked = of_chat("Hello.") | {"max_tokens": LONG_TOKENS, "stream": True}
    with through.chat.completions.create(**asked) as chunks:
        for _ in range(3):
            next(chunks)
        section.check(total(fleet, RUNNING) == 1, "a long stream does not show as running")
    left_at = time.monotonic()
    while total(fleet, RUNNING) and time.monotonic() < left_at + FREE_WITHIN_S:
        # wait: paces the polling
        time.sleep(POLL_S / 10)
    took_ms = (time.monotonic() - left_at) * 1e3
    made = total(fleet, "vllm:generation_tokens_total") - before
    section.check(made < LONG_TOKENS, "a server went on although the client had left")
    section.notes.append(
        f"A client left in a stream: its server was free after {took_ms:.0f} ms and had made "
        f"{made:.0f} of {LONG_TOKENS} tokens"
    )


def total(fleet: Fleet, name: str) -> float:
    return sum(read(server.url).total(name) for server in fleet.servers)
