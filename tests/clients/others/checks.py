"""Runs the checks of clients against model servers: `checks.py NAME=URL... -- MODULE...`.

A check is a function `check_*` that takes the URL of a server without path. Standard output is one JSON
object: for each module and server the checks that failed, with what they raised.
"""

import importlib
import json
import sys
import warnings
from types import ModuleType


def failures(module: ModuleType, url: str) -> dict[str, str]:
    """The checks of `module` that fail at `url`, and why."""
    failed = {}
    for name, check in vars(module).items():
        if name.startswith("check_"):
            try:
                check(url)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"[:500]
    return failed


def main(servers: list[str], modules: list[str]) -> None:
    # The clients' own, about their dependencies.
    warnings.simplefilter("ignore")
    urls = dict(server.split("=", 1) for server in servers)
    print(
        json.dumps(
            {
                module: {name: failures(importlib.import_module(module), urls[name]) for name in urls}
                for module in modules
            }
        )
    )


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(sys.argv[1:split], sys.argv[split + 1 :])
