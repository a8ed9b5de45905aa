"""What the console's tests look at: two nodes of one cluster, a node alone, and a browser."""

import contextlib
import http.client
import json
import os
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from cluster import certify
from processes import Process, answers_200, consecutive, free_ports
from world import spillway

READER, OPERATOR = "reader-" + "0" * 24, "operator-" + "1" * 24
# By where they are on the map; the second one is placed by the config.
REGIONS = {"one": "eu-central-1", "two": "my-region"}
VIEWS = {
    "world": "World",
    "regions/eu-central-1": "Region eu-central-1",
    "replicas": "Replicas",
    "requests": "Requests",
    "routes": "Routes and models",
    "prompts": "Hot prompts",
    "control": "Control plane",
    "limits": "Limits and keys",
    "alerts": "Alerts",
    "explain": "Explain",
}
PATIENCE_MS = 20_000
PATIENCE_S = PATIENCE_MS / 1_000

NODE = """
[node]
name = "{name}"
region = "{region}"

[[listener]]
address = "127.0.0.1:{gateway}"
auth = "none"

[admin]
address = "127.0.0.1:{admin}"
{token_file}

[[replica]]
name = "{name}-tiny"
url = "http://127.0.0.1:{replica}"
models = ["tiny"]
connections_max = 4
"""

CLUSTER = """
[cluster]
id = "console"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.{region}.pem"
key = "certs/{name}.{region}-key.pem"
prefix_key = "certs/prefix.key"
data = "{name}.data"

[[peer]]
name = "{other}"
region = "{other_region}"
address = "127.0.0.1:{other_link}"

[[region]]
name = "my-region"
latitude = 35.7
longitude = 139.7
"""


class Node:
    """A node that has a console."""

    def __init__(self, name: str, folder: Path, ports: Iterator[int], replica: int) -> None:
        self.name, self.folder, self.replica = name, folder, replica
        self.gateway, self.admin, self.link = next(ports), next(ports), next(ports)
        self.process: Process | None = None
        self.region = REGIONS.get(name, "here")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    @property
    def console(self) -> str:
        return f"{self.url}/console/"

    def start(self, other: "Node | None" = None, token_file: str = "") -> None:
        text = NODE.format(
            name=self.name,
            region=self.region,
            gateway=self.gateway,
            admin=self.admin,
            replica=self.replica,
            token_file=token_file,
        )
        if other:
            text += CLUSTER.format(
                name=self.name,
                region=self.region,
                link=self.link,
                other=other.name,
                other_region=other.region,
                other_link=other.link,
            )
        path = self.folder / f"{self.name}.toml"
        path.write_text(text)
        self.again()

    def again(self) -> None:
        """Starts it once more, as it was."""
        path = self.folder / f"{self.name}.toml"
        self.process = Process(self.name, [spillway(), "run", "--config", str(path)], self.folder)

    def wait_until_ready(self) -> None:
        self.process.wait_until("ready", lambda: answers_200(f"{self.url}/readyz"))

    def get(self, path: str, token: str = "") -> dict:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def sees(self, members: int, token: str = "") -> bool:
        """Whether it knows so many members, and that each region's replica is known."""
        try:
            nodes = self.get("v1/nodes?consistency=linearizable", token)["items"]
            replicas = self.get("v1/replicas?consistency=stale", token)["items"]
            regions = self.get("v1/world", token)["regions"]
            heard = [region for region in regions if region["is_heard"] and region["models"]]
            return [len(nodes), len(replicas), len(heard)] == [members] * 3
        except urllib.error.HTTPError as error:
            # No leader yet.
            error.close()
            return False

    def put(self, path: str, record: dict) -> None:
        self.write("PUT", path, json.dumps(record).encode())

    def delete(self, path: str) -> None:
        self.write("DELETE", path, None)

    def write(self, method: str, path: str, body: bytes | None) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", body, headers, method=method)
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()

    def asks(self, model: str) -> int:
        """Sends a chat to a model, and returns the status of its reply."""
        try:
            return self.ask("of-a-split", model=model)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def ask(self, request_id: str, text: str = "Hello", model: str = "tiny") -> int:
        """Sends a chat, and returns the status of its reply."""
        body = json.dumps({"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": text}]})
        headers = {"content-type": "application/json", "x-request-id": request_id}
        request = urllib.request.Request(f"http://127.0.0.1:{self.gateway}/v1/chat/completions", body.encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.status

    def state_of_region(self, region: str, token: str = "") -> str:
        return self.get(f"v1/regions/{region}", token)["item"]["record"]["state"]


class Site:
    """Nodes `one` (with tokens) and `two` (without) of a cluster, and the node `alone`."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports()
        replicas = consecutive(ports, 2)
        self.folder = folder
        self.one, self.two = (Node(name, folder, ports, replicas[0]) for name in REGIONS)
        self.alone = Node("alone", folder, ports, replicas[1])
        self.emulator: Process | None = None
        try:
            self.start(replicas)
        except BaseException:
            self.stop()
            raise

    def start(self, replicas: list[int]) -> None:
        command = [spillway(), "emulate", "--listen", f"127.0.0.1:{replicas[0]}", "--replicas", "2"]
        command += ["--model=tiny", "--profile", "l4", "--time-scale", "0.5", "--seed", "7"]
        self.emulator = Process("emulator", command, self.folder)
        certify(self.folder, "init", "--cluster", "console")
        for node in (self.one, self.two):
            certify(self.folder, "node", "--region", node.region, "--node", node.name)
        tokens = self.folder / "tokens"
        tokens.write_text(f"rea read {READER}\noda operate {OPERATOR}\n")
        tokens.chmod(0o600)
        self.one.start(self.two, f'token_file = "{tokens}"')
        self.two.start(self.one)
        self.alone.start()
        for node, token in [(self.one, READER), (self.two, "")]:
            node.process.wait_until("complete", lambda n=node, t=token: answers(n) and n.sees(2, t))
        self.alone.wait_until_ready()

    def stop(self) -> None:
        processes = [node.process for node in (self.one, self.two, self.alone)]
        for process in [*processes, self.emulator]:
            if process:
                process.stop()


def answers(node: Node) -> bool:
    return answers_200(f"{node.url}/livez")


def chromium() -> str | None:
    """Path of the browser; None where there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers and root lack; it opens nothing but the console.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Prefixed(BaseHTTPRequestHandler):
    """A proxy that has a node below a path of its own, as an ingress does."""

    prefix = "/ops/one"
    node: Node

    def do_GET(self) -> None:
        path = self.path.removeprefix(self.prefix)
        if path == self.path:
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.node.admin, timeout=30)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            connection.request("GET", path, headers=kept)
            self.relay(connection.getresponse())
        finally:
            connection.close()

    def relay(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.end_headers()
        # The page closes its stream when it goes.
        with contextlib.suppress(ConnectionError):
            while piece := answer.read1(65_536):
                self.wfile.write(piece)

    def log_message(self, *_arguments) -> None:
        pass


@contextmanager
def behind_a_prefix(node: Node) -> Iterator[str]:
    """Starts that proxy before a node; the address of the console there."""
    handler = type("Handler", (Prefixed,), {"node": node})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{Prefixed.prefix}/console"
        finally:
            server.shutdown()


class Tab:
    """A page of the console, and all that its browser complained about."""

    def __init__(self, context: BrowserContext, node: Node) -> None:
        self.node = node
        self.console = node.console
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self.note)
        self.page.on("request", self.check_request)

    def note(self, message) -> None:
        # While a leader is elected an order is refused with 503, and the page repeats it.
        if message.type in ("error", "warning") and "status of 503" not in message.text:
            self.complaints.append(message.text)

    def check_request(self, request) -> None:
        if not request.url.startswith(self.console.partition("/console")[0] + "/"):
            self.complaints.append(f"asks {request.url}")

    def open(self, token: str = "") -> Page:
        """Opens the console, signs in if there is a token, and waits for the first figures."""
        self.page.goto(self.console)
        if token:
            self.page.get_by_label("Token").fill(token)
            self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("#connection[data-state=live]").wait_for()
        # The node has refused the first request, as it should, and the browser says so.
        self.complaints = [it for it in self.complaints if not (token and "401" in it)]
        return self.page

    def show(self, view: str) -> None:
        """Shows a view, and waits until it has its title and its records."""
        self.page.evaluate("view => { location.hash = `#/${view}` }", view)
        self.page.get_by_role("heading", level=1, name=VIEWS[view], exact=True).wait_for()
        self.page.locator("main:not([aria-busy])").wait_for()


def violations(page: Page) -> list[str]:
    """What axe finds wrong with a page."""
    # Evaluated and not added as an element, which the page's policy forbids.
    page.evaluate(Path(AXE_FILE_PATH).read_text())
    found = page.evaluate("axe.run().then(found => found.violations)")
    return [f"{it['id']}: {it['nodes'][0]['html']} {it['nodes'][0]['failureSummary']}" for it in found]
