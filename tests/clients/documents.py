"""Blocks of code on the pages of README.md and docs/, and how each of them is tried.

Behind the language of a fence stands how its block is tried:

    sh, python        run in the page's order, on README.md and the pages of docs/start/ alone
    sh NAME           run by the test that the section names by `<!-- test: FILE TEST -->`, as is any block there
    toml              accepted by `spillway config check`, completed where it is a part of a file
    text output       what the block before has printed: these lines in this order, `…` for anything
    <!-- run: … -->   steps that the text says in words, run as if they stood there
    … illustrative    not run; blocks of docs/measured/ are so without the word

Commands of `spillway` are parsed by the program itself, wherever they stand.
"""

import re
import shlex
import socket
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# Languages whose blocks a reader copies.
COPIED = {"sh", "toml", "python", "console"}
# Pages whose blocks are steps of one way, walked in order.
WALKED = ["README.md", "docs/start/one-node.md", "docs/start/keys-and-limits.md", "docs/start/three-regions.md"]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[a-z][^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
# Steps that the text of a walked page says in words.
_SAID = re.compile(r"^<!-- run:\n(?P<text>.*?)^-->$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_TESTED = "<!-- test: "
# Words of a shell before a command.
_BEFORE = {"do", "then", "until", "while", "if", "!", "--", "sudo"}
_INLINE = re.compile(r"(?<!`)`(spillway(?: [^`]+)?)`(?!`)")
# The first three digits of a port on a walked page; the last one may be a variable of the shell.
_PORTS = re.compile(r"(?<![\w.])([789]\d\d)(?=\d\b|\$\d)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    is_in_tested_section: bool

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_illustrative(self) -> bool:
        """Whether it is there to be read: so marked, or the command that made the figures of a measured page."""
        return "illustrative" in self.words or self.page.startswith("docs/measured/")

    @property
    def is_walked(self) -> bool:
        return self.page in WALKED and not self.is_illustrative

    @property
    def is_tried(self) -> bool:
        """Whether some test runs it; TOML always is."""
        return self.language == "toml" or self.is_walked or self.is_in_tested_section


def pages() -> list[str]:
    found = sorted((ROOT / "docs").rglob("*.md"))
    return ["README.md", *(str(path.relative_to(ROOT)) for path in found if ".venv" not in path.parts)]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    found = []
    for fence in _FENCE.finditer(text):
        language, *words = fence["info"].split()
        line = text.count("\n", 0, fence.start()) + 1
        code = textwrap.dedent(fence["text"])
        found.append(Block(page, line, language, tuple(words), code, _TESTED in _section(text, fence.start())))
    if page in WALKED:
        for said in _SAID.finditer(text):
            found.append(Block(page, text.count("\n", 0, said.start()) + 1, "sh", (), said["text"], False))
    return sorted(found, key=lambda block: block.line)


def _section(text: str, at: int) -> str:
    """Returns the text between the headings around `at`. Comments in code look like headings, so code is blanked out."""
    plain = _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    starts = [0, *(heading.start() for heading in _HEADING.finditer(plain)), len(text)]
    begin = max(start for start in starts if start <= at)
    return text[begin : min(start for start in starts if start > at)]


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each command of `spillway` on a page: its place, and its words behind `spillway`."""
    for block in blocks(page):
        if block.language in ("sh", "console"):
            yield from ((f"{block.place}: {line}", words) for line in typed(block) for words in _calls(line))
    prose = _FENCE.sub("", (ROOT / page).read_text())
    for code in _INLINE.finditer(prose):
        # A list of commands names the program once; what may be left out stands in brackets.
        first, *others = code[1].replace("\n", " ").replace("[", "").replace("]", "").split(" | ")
        for command in (first, *(f"spillway {other}" for other in others)):
            for words in _calls(command):
                # What is left out is for the reader to fill in.
                if not any("…" in word or ".." in word for word in words):
                    yield f"{page}: {code[0]}", words


def typed(block: Block) -> list[str]:
    """Returns the lines that a reader types into a shell."""
    text = block.text.replace("\\\n", " ")
    # Files that are written on the way are no commands.
    text = re.sub(r"<<'?END'?\n.*?^END$", "", text, flags=re.MULTILINE | re.DOTALL)
    if block.language == "console":
        return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return text.splitlines()


def _calls(line: str) -> Iterator[list[str]]:
    """Yields the words of each call of `spillway` in a line of a shell."""
    line = re.sub(r"cargo run( --release)? --(?= )", "spillway", line)
    line = re.sub(r"\$\([^)]*\)", "…", line)
    line = re.sub(r"(?<=\s)\d?>>?\s*(&\d|[^\s;|&)]+)", "", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();|&")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        # A quotation that ends on another line.
        tokens = line.split()
    call: list[str] | None = None
    before = ";"
    for token in [*tokens, ";"]:
        if set(token) <= set("();|&"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(token)
        elif token == "spillway" and (before in _BEFORE or "=" in before or set(before) <= set("{();|&")):
            call = []
        before = token


def moved(text: str, by: int) -> str:
    """Moves all ports of a walked page, so that it does not meet what runs on this machine."""
    return _PORTS.sub(lambda prefix: str(int(prefix[1]) + by), text)


def free_move(texts: list[str]) -> int:
    """Returns by how much `moved` can move the ports of these texts, so that nobody uses one."""
    prefixes = {int(prefix) for text in texts for prefix in _PORTS.findall(text)}
    for by in range(1_300, 2_000):
        if all(_is_free(10 * (prefix + by) + last) for prefix in prefixes for last in range(10)):
            return by
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def completed(sample: str) -> str:
    """Makes a whole config of a sample that is part of one: a listener, models that somebody serves, a cluster."""
    config = tomllib.loads(sample)
    if "listener" in config:
        return sample
    sample += _SERVED
    if config.keys() & {"cluster", "peer", "region", "dns"}:
        for table, settings in _CLUSTER.items():
            missing = "".join(f"{key} = {value}\n" for key, value in settings.items() if key not in config.get(table, {}))
            head = f"[{table}]"
            if table not in config:
                sample += f"{head}\n"
            sample = sample.replace(head, f"{head}\n{missing}", 1)
        if "peer" not in config:
            sample += _PEERS
    return sample


_SERVED = """
[[listener]]
address = "127.0.0.1:0"
[[replica]]
name = "all"
url = "http://127.0.0.1:1"
models = ["llama-3.1-8b", "llama-3.1-8b-v2", "llama-70b", "llama-8b", "tiny"]
versions = { "llama-3.1-8b-v2" = ["2"] }
[[key]]
id = "5c1d0a9be2f34a77"
salt = "2a0f6d1c8e4b7395a1c3e5f708192a3b"
hash = "91be63d0a7f24c1e5b8893d6f0a1c2e4b5d7f60918273a4b5c6d7e8f9a0b1c2d"
tenant = "acme"
"""
_CLUSTER = {
    "node": {"name": '"n4"', "region": '"ap-northeast-1"'},
    "cluster": {
        "id": '"prod"',
        "address": '"127.0.0.1:0"',
        "ca": '"certs/ca.pem"',
        "certificate": '"certs/n4.ap-northeast-1.pem"',
        "key": '"certs/n4.ap-northeast-1-key.pem"',
        "prefix_key": '"certs/prefix.key"',
    },
}
_PEERS = """
[[peer]]
name = "eu-1"
region = "eu-central-1"
address = "127.0.0.1:1"
[[peer]]
name = "home-1"
region = "homelab"
address = "127.0.0.1:2"
"""


def contains(output: str, wanted: str) -> str | None:
    """Returns the first line of `wanted` that `output` has not, behind the lines before; None if it has all."""
    rest = iter(output.splitlines())
    for line in wanted.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        if not any(pattern.fullmatch(had.rstrip()) for had in rest):
            return line
    return None


def empty_location_database(kind: str) -> bytes:
    """Makes a location database (MMDB) that knows no address."""
    name, number = (lambda text: bytes([0x40 | len(text)]) + text.encode()), (lambda value: b"\xa1" + bytes([value]))
    metadata = {
        "binary_format_major_version": number(2),
        "binary_format_minor_version": number(0),
        "build_epoch": b"\x04\x02" + (1_700_000_000).to_bytes(4, "big"),
        "database_type": name(kind),
        "description": b"\xe1" + name("en") + name("empty"),
        "ip_version": number(6),
        "languages": b"\x00\x04",
        "node_count": b"\xc1\x01",
        "record_size": number(24),
    }
    # One node, both of whose records say that nothing is there.
    tree = (1).to_bytes(3, "big") * 2
    pairs = b"".join(name(key) + value for key, value in metadata.items())
    return tree + bytes(16) + b"\xab\xcd\xefMaxMind.com" + bytes([0xE0 | len(metadata)]) + pairs
