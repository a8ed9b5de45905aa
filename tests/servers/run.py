"""Runs two real model servers (vLLM on the CPU) behind the gateway and says what it saw.

The first run installs vLLM and the OpenAI SDK, 6 GB, below the work folder. See README.md.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Set once the script runs in the environment that it has made for itself.
INSIDE = "SPILLWAY_SERVERS_INSIDE"
POLICIES = [
    "round_robin",
    "power_of_two",
    "least_loaded",
    "consistent_hash",
    "bounded_consistent_hash",
    "prefix_aware",
    "predicted_latency",
]
# Those that kill a server come last.
SCENES = ["answers", "speed", "signals", "prefix", "chats", "continuation", "failure"]
# Both servers, their client and the gateway.
MEMORY_BYTES_MIN = 8 << 30
EXAMPLE = """example:
  python tests/servers/run.py --spillway target/dist/spillway --markdown target/servers.md
"""


def main() -> int:
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    if INSIDE not in os.environ:
        move_inside(options.work)
    import install
    import report

    need(options)
    python = install.vllm(options.work / "vllm")
    with time_limit(options.limit_s):
        facts, sections = measure(options, python)

    text = report.markdown(facts, sections)
    if options.markdown:
        page = options.markdown
        page.write_text(report.into_page(page.read_text() if page.exists() else "", text))
    if options.json:
        options.json.write_text(report.as_json(facts, sections))
    print(text)
    return 1 if any(section.failures for section in sections) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = ROOT / "target" / "dist" / "spillway"
    add("--spillway", type=Path, default=default, help="the binary (default: target/dist/spillway)")
    add("--markdown", type=Path, metavar="FILE", help="write the report there as well, below what other commands made of the page")
    add("--json", type=Path, metavar="FILE", help="write what was measured there as JSON")
    add("--scenes", type=scenes, default=SCENES, metavar="A,B",
        help=f"of {', '.join(SCENES)} (default: all)")
    add("--policies", type=comma_separated, default=POLICIES, metavar="A,B",
        help="to compare in the prefix scene; what the binary does not know is left out")
    add("--config-tail", type=Path, metavar="FILE", help="TOML to add to the gateway's config")
    work = ROOT / "target" / "servers"
    add("--work", type=Path, default=work, help="folder for environments, model and logs "
        "(default: target/servers)")
    add("--limit-s", type=int, default=600, help="time for everything but installing (600)")
    return parser.parse_args()


def comma_separated(text: str) -> list[str]:
    return text.split(",")


def scenes(text: str) -> list[str]:
    names = comma_separated(text)
    unknown = sorted(set(names) - set(SCENES))
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}")
    return names


def move_inside(work: Path) -> None:
    """Goes on in an environment that has the SDK; does not return."""
    sys.path.insert(0, str(HERE))
    import install

    python = install.client(work.resolve() / "client")
    os.execve(python, [str(python), *sys.argv], os.environ | {INSIDE: "1"})


def need(options: argparse.Namespace) -> None:
    """Ends with a remedy if something is missing."""
    if not options.spillway.is_file():
        sys.exit(f"{options.spillway}: build it with `cargo build --profile dist -p spillway`")
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    if kib * 1024 < MEMORY_BYTES_MIN:
        sys.exit(f"{kib >> 20} GiB of memory are free; two servers need {MEMORY_BYTES_MIN >> 30}")


class BrokenOff(SystemExit):
    """Ends the run early. No `Exception`: nothing that a scene does may catch it."""


@contextmanager
def time_limit(limit_s: int) -> Iterator[None]:
    """Breaks off at the limit, and on SIGTERM, so that what was started is ended."""

    def break_off(number: int, _frame: object) -> None:
        # Ending everything is not to be broken off by a second signal.
        for each in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        name = signal.Signals(number).name
        raise BrokenOff(f"broken off by {name}; the time limit is {limit_s} s")

    for each in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, break_off)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)


def measure(options: argparse.Namespace, python: Path) -> tuple[dict[str, str], list]:
    from fleet import Fleet, usable_policies

    started_at, load_before = time.monotonic(), os.getloadavg()[0]
    folder, spillway = options.work.resolve(), options.spillway.resolve()
    make_model(folder, python)
    policies = usable_policies(spillway, options.policies, folder)
    tail = options.config_tail.read_text() if options.config_tail else ""
    fleet = Fleet(folder, spillway, python, policies, tail)
    try:
        say("starting two servers and the gateway")
        fleet.start()
        ready_s = time.monotonic() - started_at
        sections = play(fleet, options.scenes)
    finally:
        fleet.stop()
    facts = facts_of(options, fleet) | {
        "machine": f"{os.cpu_count()} cores; load average {load_before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after",
        "time": f"{time.monotonic() - started_at:.0f} s, of them {ready_s:.0f} s to start",
    }
    return facts, sections


def play(fleet, wanted: list[str]) -> list:
    """Plays the wanted scenes. What goes wrong in one is in the report beside the others."""
    from report import Section
    from scenes import answers, chats, continuation, failure, prefix, signals, speed

    scenes: dict[str, Callable[[], Section]] = {
        "answers": lambda: answers.play(fleet),
        "speed": lambda: asyncio.run(speed.play(fleet)),
        "signals": lambda: asyncio.run(signals.play(fleet)),
        "prefix": lambda: asyncio.run(prefix.play(fleet)),
        "chats": lambda: asyncio.run(chats.play(fleet)),
        "continuation": lambda: asyncio.run(continuation.play(fleet)),
        "failure": lambda: asyncio.run(failure.play(fleet)),
    }
    sections = []
    for name in (name for name in SCENES if name in wanted):
        say(f"scene: {name}")
        try:
            sections.append(scenes[name]())
        except BrokenOff as reason:
            return [*sections, Section(name, failures=[str(reason)])]
        except Exception as error:
            traceback.print_exc()
            first_line = str(error).partition("\n")[0]
            sections.append(Section(name, failures=[f"{type(error).__name__}: {first_line}"]))
    return sections


def make_model(folder: Path, python: Path) -> None:
    made = folder / "model" / "config.json"
    if not made.exists() or made.stat().st_mtime < (HERE / "model.py").stat().st_mtime:
        say("writing the model")
        command = [str(python), str(HERE / "model.py"), str(folder / "model")]
        subprocess.run(command, check=True, timeout=120, capture_output=True)


def facts_of(options: argparse.Namespace, fleet) -> dict[str, str]:
    import install
    from fleet import replica_settings

    version = subprocess.run(
        [str(options.spillway), "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
    kind = "set" if "kind" in replica_settings(options.spillway) else "not known to this build"
    left_out = [each for each in options.policies if each not in fleet.policies.names]
    return {
        "gateway": f"{version}; `kind` of replicas {kind}",
        "policies unknown to it": ", ".join(left_out) or "none",
        "servers": f"2 x vLLM {install.VLLM} on the CPU, random Llama of 4 layers",
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
