"""Measures one vLLM on the CPU and fits the cost of an engine's step to a part of the figures.

Prints the cost in the form of `StepCost` of crates/lab/engine, and all figures. The test
crates/lab/engine/tests/published compares those that the fit did not know with the engine of that cost.
The first run installs vLLM, 6 GB, below the work folder.
"""

import argparse
import http.client
import itertools
import json
import math
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import install
from fleet import LOAD_S, MODEL, Fleet, Policies, Server, free_ports
from run import make_model

ROOT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 15
# Runs of many requests; the quickest counts.
RUNS = 3
OUTPUT_TOKENS = 64
# Prompt tokens of lone requests, and whether the fit knows the time of their first token.
LONE = {256: True, 512: False, 1024: False, 1900: True}
# Requests at a time and tokens of each prompt, and whether the fit knows the time between tokens.
TOGETHER = {
    (1, 256): True,
    (1, 1500): False,
    (4, 256): False,
    (4, 1500): True,
    (8, 256): False,
    (8, 700): True,
}
# Runs of many: prompts of 256 and outputs of 64 tokens.
MANY_PROMPT = 256
AT_ONCE = 40
RANDOM, RANDOM_PER_S = 100, 12.0
# Any tokens but the special ones do as a prompt.
TOKENS = range(10, 1000)


@dataclass
class Reply:
    """Times of one streamed reply, in seconds after `sent`."""

    sent: float
    tokens: list[float] = field(default_factory=list)

    def first_ms(self) -> float:
        return self.tokens[0] * 1e3

    def gap_ms(self) -> float:
        return (self.tokens[-1] - self.tokens[0]) * 1e3 / (len(self.tokens) - 1)


@dataclass
class Figure:
    """What was measured, and the step it is the time of, if the fit is to know it."""

    load: str
    quantity: str
    value: float
    # Steps, prompt tokens, sequences and KV tokens: factors of the four costs.
    step: tuple[float, float, float, float] | None = None


def main() -> int:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    folder = options.work.resolve()
    python = install.vllm(folder / "vllm")
    make_model(folder, python)
    fleet = Fleet(folder, Path(), python, Policies(), "")
    port = next(free_ports())
    server = Server(0, port, ["nice", "-n", "10", *fleet.serve(0, port)], folder)
    try:
        server.wait_until("healthy", server.is_healthy, LOAD_S)
        figures = measure(port)
    finally:
        server.kill()
    costs = fit([each for each in figures if each.step])
    names = ["base_ns", "prefill_token_ns", "sequence_ns", "kv_token_ns"]
    print(f"load average {os.getloadavg()[0]:.1f}")
    print("StepCost {", ", ".join(f"{n}: {c * 1e6:.0f}" for n, c in zip(names, costs)), "}")
    for each in figures:
        note = "fitted" if each.step else ""
        print(f"{each.load:40} {each.quantity:24} {each.value:10.2f} {note}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    work = ROOT / "target" / "servers"
    parser.add_argument("--work", type=Path, default=work,
        help="folder for environment, model and log (default: target/servers)")
    return parser.parse_args()


def measure(port: int) -> list[Figure]:
    choose = random.Random(1)
    prompt = lambda tokens: choose.choices(TOKENS, k=tokens)  # noqa: E731
    # Whatever is set up with the first requests is not measured.
    for _ in range(ROUNDS):
        together(port, [prompt(tokens) for tokens in LONE])
    figures = []
    for tokens, fitted in LONE.items():
        cold, seen = [], []
        for _ in range(ROUNDS):
            text = prompt(tokens)
            cold.append(ask(port, text, 2).first_ms())
            seen.append(ask(port, text, 2).first_ms())
        step = (1, tokens, 1, tokens) if fitted else None
        load = f"one prompt of {tokens}"
        figures.append(Figure(load, "first token, ms", quartile(cold), step))
        figures.append(Figure(f"{load}, seen", "first token, ms", quartile(seen)))
    for (count, tokens), fitted in TOGETHER.items():
        gaps = []
        for _ in range(ROUNDS):
            # Seen prompts, so that all of them are in the batch from the beginning.
            texts = [prompt(tokens) for _ in range(count)]
            for text in texts:
                ask(port, text, 1)
            gaps += [reply.gap_ms() for reply in together(port, texts)]
        context = count * (tokens + OUTPUT_TOKENS / 2)
        step = (1, 0, count, context) if fitted else None
        load = f"{count} seen prompts of {tokens} at once"
        figures.append(Figure(load, "between tokens, ms", quartile(gaps), step))
    load = f"{AT_ONCE} prompts of {MANY_PROMPT} at once"
    figures += many(load, lambda: together(port, [prompt(MANY_PROMPT) for _ in range(AT_ONCE)]))
    gaps = [-math.log(1 - (i + 0.5) / RANDOM) / RANDOM_PER_S for i in range(RANDOM)]
    choose.shuffle(gaps)
    moments = list(itertools.accumulate(gaps))
    load = f"{RANDOM} prompts of {MANY_PROMPT}, {RANDOM_PER_S:.0f} a second"
    return figures + many(
        load, lambda: together(port, [prompt(MANY_PROMPT) for _ in range(RANDOM)], moments)
    )


def quartile(times: list[float]) -> float:
    """What a quarter does not exceed: other work on the machine only ever adds."""
    return statistics.quantiles(times, n=4)[0]


def many(load: str, run: Callable[[], list[Reply]]) -> list[Figure]:
    replies = min((run() for _ in range(RUNS)), key=duration_s)
    return [
        Figure(load, "first token, ms", statistics.median(map(Reply.first_ms, replies))),
        Figure(load, "between tokens, ms", statistics.median(map(Reply.gap_ms, replies))),
        Figure(load, "until all are done, s", duration_s(replies)),
    ]


def duration_s(replies: list[Reply]) -> float:
    end = max(reply.sent + reply.tokens[-1] for reply in replies)
    return end - min(reply.sent for reply in replies)


def together(port: int, prompts: list[list[int]], at_s: list[float] | None = None) -> list[Reply]:
    """Sends each prompt at its moment, all at once without moments; returns when all are done."""
    replies: list[Reply] = []
    start = time.monotonic()

    def send(prompt: list[int], at: float) -> None:
        # wait: the moment of a request is part of the load that is asked for
        time.sleep(max(0.0, start + at - time.monotonic()))
        replies.append(ask(port, prompt, OUTPUT_TOKENS))

    moments = at_s or [0.0] * len(prompts)
    threads = [threading.Thread(target=send, args=each) for each in zip(prompts, moments)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(replies) != len(prompts):
        raise RuntimeError(f"{len(prompts) - len(replies)} of {len(prompts)} requests failed")
    return replies


def ask(port: int, prompt: list[int], tokens: int) -> Reply:
    """Streams a completion of exactly `tokens` tokens."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    body |= {"stream": True, "temperature": 0}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    reply = Reply(time.monotonic())
    connection.request("POST", "/v1/completions", json.dumps(body),
        {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {response.read()[:200]!r}")
    for line in response:
        if line.startswith(b"data: {"):
            reply.tokens.append(time.monotonic() - reply.sent)
    connection.close()
    # A chunk may carry several tokens when the client is late; such a reply would mislead.
    if not reply.tokens:
        raise RuntimeError("the reply had no token")
    return reply


def fit(figures: list[Figure]) -> list[float]:
    """Costs in ms, none negative, with the least sum of squared relative errors."""
    kept = [0, 1, 2, 3]
    while True:
        rows = [[each.step[i] / each.value for i in kept] for each in figures]
        found = solve(rows, [1.0] * len(rows))
        lowest = min(range(len(kept)), key=lambda i: found[i])
        if found[lowest] >= 0:
            costs = [0.0] * 4
            for index, cost in zip(kept, found):
                costs[index] = cost
            return costs
        # A cost that would be negative is none.
        del kept[lowest]


def solve(rows: list[list[float]], values: list[float]) -> list[float]:
    """Least squares by the normal equations."""
    size = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(size)]
        + [sum(row[i] * value for row, value in zip(rows, values))] for i in range(size)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for j in range(size):
            if j != i:
                factor = matrix[j][i] / matrix[i][i]
                matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


if __name__ == "__main__":
    sys.exit(main())
