"""The processes of this test: two vLLM servers and one gateway before them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "clients"))

from processes import Process, answers_200, free_ports  # noqa: E402

SERVERS = 2
# What every server serves. Each also has a name of its own, so that a request can be sent to one of
# them through the gateway.
MODEL = "tiny"
# The model name whose requests the replicas take in turn.
TURNS = f"{MODEL}-in-turn"
# The same, and streams whose server dies go on at the other one.
CONTINUED = f"{MODEL}-continued"
# Two at a time on two busy cores; alone one takes 30 s.
LOAD_S = 180.0
GATEWAY_START_S = 20.0
POLL_S = 0.1
# Of prompts and answers: 8192 tokens, so that a server can't remember every prompt of the prefix
# scene, and can hold four of the longest requests.
BLOCK_TOKENS = 32
BLOCKS = 256
# Few, so that requests also wait.
RUNNING_MAX = 8

HEAD = """
[node]
name = "servers"
region = "here"
expose_routing = true
drain_ms = 2000

[[listener]]
address = "127.0.0.1:{gateway}"

[admin]
address = "127.0.0.1:{admin}"
"""
REPLICA = """
[[replica]]
name = "vllm-{index}"
url = "http://127.0.0.1:{port}"
models = {models}
"""
ROUTE = """
[[route]]
name = "{policy}"
models = ["{model}"]
policy = "{policy}"
"""
IN_TURN = f"""
[[route]]
name = "in-turn"
models = ["{TURNS}"]
policy = "round_robin"

[[route]]
name = "continued"
models = ["{CONTINUED}"]
policy = "round_robin"
continue_streams = true
"""
HASH_BY = 'hash_by = "prompt_prefix"\n'


class Server(Process):
    """A model server. Killed, it can be started again at the same port."""

    def __init__(self, index: int, port: int, command: list[str], folder: Path) -> None:
        self.index, self.port, self.command, self.folder = index, port, command, folder
        self.url = f"http://127.0.0.1:{port}"
        self.started_at = time.monotonic()
        super().__init__(f"vllm-{index}", command, folder)

    def kill(self) -> None:
        """Ends it at once with everything it started, as when its machine dies."""
        # Its engine is a process of its own, which would outlive the server by itself.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def again(self) -> "Server":
        return Server(self.index, self.port, self.command, self.folder)

    def is_healthy(self) -> bool:
        return answers_200(f"{self.url}/health")


class Gateway(Process):
    """The `spillway` process."""

    def cpu_s(self) -> float:
        """Processor time it has used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Policies:
    """How requests of the prefix scene are routed: the policy, and whether it takes a key."""

    names: list[str] = field(default_factory=list)
    hashing: set[str] = field(default_factory=set)

    def route(self, policy: str) -> str:
        text = ROUTE.format(policy=policy, model=model_of(policy))
        return text + HASH_BY if policy in self.hashing else text


@dataclass
class Fleet:
    """Everything that runs, and where."""

    folder: Path
    spillway: Path
    python: Path
    policies: Policies
    # Text added to the gateway's config.
    config_tail: str
    ports: Iterator[int] = field(default_factory=free_ports)
    servers: list[Server] = field(default_factory=list)
    gateway: Gateway | None = None
    gateway_port: int = 0
    admin_port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def start(self) -> None:
        """Returns when both servers have loaded their model and the gateway is ready."""
        self.gateway_port, self.admin_port = next(self.ports), next(self.ports)
        for index in range(SERVERS):
            port = next(self.ports)
            self.servers.append(Server(index, port, self.serve(index, port), self.folder))
        for server in self.servers:
            server.wait_until("healthy", server.is_healthy, LOAD_S)
        config = self.folder / "spillway.toml"
        config.write_text(self.config())
        command = [*tied(), str(self.spillway), "run", "--config", str(config)]
        self.gateway = Gateway("gateway", command, self.folder)
        ready = f"{self.admin_url}/readyz"
        self.gateway.wait_until("ready", lambda: answers_200(ready), GATEWAY_START_S)

    def stop(self) -> None:
        """Ends everything that was started, and all that those started."""
        for process in [self.gateway, *self.servers]:
            if process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.stop()

    def restart(self, index: int) -> Server:
        """Starts a killed server again and returns at once."""
        self.servers[index] = self.servers[index].again()
        return self.servers[index]

    def serve(self, index: int, port: int) -> list[str]:
        # One thread each, wherever there is time: by default both would bind to the same cores.
        environment = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
        }
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), *tied()]
        # The module: the `vllm` command looks for a package of another name than that of CPUs.
        command += [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(self.folder / "model")]
        command += ["--served-model-name", *self.models(index)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
        command += ["--max-model-len", "2048", "--max-num-seqs", str(RUNNING_MAX)]
        command += ["--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(BLOCKS)]
        # Replies say how much of the prompt was cached.
        command += ["--enable-prompt-tokens-details"]
        return [*command, "--enable-prefix-caching", "--enforce-eager"]

    def config(self) -> str:
        """The gateway's config file."""
        text = HEAD.format(gateway=self.gateway_port, admin=self.admin_port)
        known = replica_settings(self.spillway)
        for server in self.servers:
            models = json.dumps(self.models(server.index))
            text += REPLICA.format(index=server.index, port=server.port, models=models)
            text += 'kind = "vllm"\n' if "kind" in known else ""
        routes = map(self.policies.route, self.policies.names)
        return text + IN_TURN + "".join(routes) + self.config_tail

    def models(self, index: int) -> list[str]:
        """The names under which that server is asked."""
        return [MODEL, own_name(index), TURNS, CONTINUED, *map(model_of, self.policies.names)]


def own_name(index: int) -> str:
    """The name under which only this server is asked."""
    return f"{MODEL}-{index}"


def model_of(policy: str) -> str:
    """The model name whose requests are routed by `policy`."""
    return f"{MODEL}-{policy}"


def tied() -> list[str]:
    """What makes a command end with this process, however this process ends."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def replica_settings(spillway: Path) -> set[str]:
    """The keys that `[[replica]]` may have in this build."""
    command = [str(spillway), "config", "schema"]
    out = subprocess.run(command, capture_output=True, check=True, timeout=10).stdout
    return set(json.loads(out)["$defs"]["ReplicaSection"]["properties"])


def usable_policies(spillway: Path, wanted: list[str], folder: Path) -> Policies:
    """Those of the wanted policies that this build knows, and what they need."""
    found = Policies()
    for policy in wanted:
        models = json.dumps([model_of(policy)])
        replicas = HEAD.format(gateway=1, admin=2) + REPLICA.format(index=0, port=3, models=models)
        for hashing in (set(), {policy}):
            if accepts(spillway, replicas + Policies([policy], hashing).route(policy), folder):
                found.names.append(policy)
                found.hashing |= hashing
                break
    return found


def accepts(spillway: Path, config: str, folder: Path) -> bool:
    """Whether `spillway config check` finds no fault."""
    path = folder / "candidate.toml"
    path.write_text(config)
    command = [str(spillway), "config", "check", str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=10).returncode == 0
