"""Terraform as its users call it, in a folder of its own."""

import json
import os
import subprocess
from pathlib import Path

from needs import need_tool

PLAN_IS_EMPTY = 0
PLAN_HAS_CHANGES = 2


class Terraform:
    """A root module in `folder`. Skips the test where Terraform is missing."""

    def __init__(self, folder: Path, variables: dict | None = None) -> None:
        self.folder = folder
        self.variables = variables or {}
        self._command = need_tool("terraform", "none; https://developer.hashicorp.com/terraform")

    def run(
        self, *arguments: str, may_fail: bool = False, within_s: float = 240
    ) -> subprocess.CompletedProcess:
        (self.folder / "test.auto.tfvars.json").write_text(json.dumps(self.variables))
        done = subprocess.run(
            [self._command, *arguments],
            cwd=self.folder,
            env={
                # An empty file: what the user's own says of providers and credentials is not asked.
                **os.environ,
                "TF_CLI_CONFIG_FILE": os.devnull,
                "TF_IN_AUTOMATION": "1",
                "TF_INPUT": "0",
                "TF_CLI_ARGS": "-no-color",
                "CHECKPOINT_DISABLE": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"terraform {' '.join(arguments)}:\n{done.stdout}"
        return done

    def init(self) -> None:
        self.run("init")

    def apply(self) -> str:
        """Plans and applies at once; returns what was printed."""
        return self.run("apply", "-auto-approve").stdout

    def plan(self) -> list[str]:
        """Writes the plan into `planned`; returns the addresses of what it would change."""
        done = self.run("plan", "-detailed-exitcode", "-out=planned", may_fail=True)
        assert done.returncode in (PLAN_IS_EMPTY, PLAN_HAS_CHANGES), done.stdout
        shown = json.loads(self.run("show", "-json", "planned").stdout)
        changes = sorted(
            change["address"]
            for change in shown.get("resource_changes", [])
            if change["change"]["actions"] != ["no-op"]
        )
        assert bool(changes) == (done.returncode == PLAN_HAS_CHANGES), done.stdout
        return changes

    def apply_planned(self) -> str:
        return self.run("apply", "planned").stdout

    def destroy(self) -> str:
        return self.run("destroy", "-auto-approve").stdout

    def outputs(self) -> dict:
        shown = json.loads(self.run("output", "-json").stdout)
        return {name: output["value"] for name, output in shown.items()}
