"""What a client keeps from request to request, whichever node gets them: its sessions, and its limits."""

import json
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

from world import World, metrics, spillway

TURNS = 12
# With so many tokens the first reply lasts longer than the news of its session take to all nodes.
FIRST_TOKENS = 200
# Within this an order holds at every node, on a machine with a tenth of the usual speed, too.
EVERYWHERE_S = 30.0


def turn(client: openai.OpenAI, session: str, tokens: int = 4) -> str:
    """The replica that serves a turn of this session."""
    reply = client.chat.completions.with_raw_response.create(
        model="identity",
        messages=[{"role": "user", "content": "Go on."}],
        max_tokens=tokens,
        extra_body={"ignore_eos": True},
        extra_headers={"x-session": session},
    )
    return reply.headers["x-spillway-replica"]


def moves(world: World) -> float:
    """Sessions that moved since the nodes started."""
    lines = "\n".join(metrics(admin) for admin in world.admins).splitlines()
    counts = [line for line in lines if line.startswith("spillway_home_changes_total{")]
    return sum(float(line.split()[-1]) for line in counts if 'kept="session"' in line)


def test_a_session_by_header_keeps_its_replica(world: World, client: openai.OpenAI) -> None:
    before = moves(world)
    homes = {}
    for number in range(8):
        session = f"session-{number}"
        homes[session] = turn(client, session, FIRST_TOKENS)
    moved = [
        (session, home)
        for _ in range(TURNS)
        for session, home in homes.items()
        if turn(client, session) != home
    ]
    assert moved == [], f"of {TURNS * len(homes)}"
    assert len(set(homes.values())) > 1, "a single replica proves nothing"
    assert moves(world) == before


def order(world: World, *arguments: str) -> None:
    command = [spillway(), *arguments, "--admin", f"http://127.0.0.1:{world.admin}"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def statuses(world: World, count: int) -> list[int]:
    """Statuses of so many chats, one right after the other."""
    body = json.dumps(
        {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    ).encode()
    found = []
    for _ in range(count):
        request = urllib.request.Request(
            f"{world.url}/v1/chat/completions", body, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                found.append(reply.status)
        except urllib.error.HTTPError as error:
            error.close()
            found.append(error.code)
    return found


def test_a_limit_holds_for_all_nodes_together(world: World) -> None:
    if not world.nodes:
        pytest.skip("limits of a cluster need one")
    order(world, "limits", "set", "model:tiny", "--requests-per-min", "30")
    try:
        due = time.monotonic() + EVERYWHERE_S
        while 429 not in statuses(world, 40):
            assert time.monotonic() < due, "the limit never holds"
        began = time.monotonic()
        found = statuses(world, 60)
        passed = time.monotonic() - began
        served = found.count(200)
        assert set(found) <= {200, 429}
        # What one minute allows may come at once, and then what the time brings.
        assert served <= 30 + 1 + passed / 2, f"{served} in {passed:.1f} s"
    finally:
        order(world, "remove", "limit", "model:tiny")
    while 429 in statuses(world, 10):
        assert time.monotonic() < due + EVERYWHERE_S, "the limit never ends"
