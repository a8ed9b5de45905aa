"""Starts the services of a compose file by `docker run`, as compose would: names, networks, volumes, commands."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from engine import Engine

KNOWN = {
    "image", "command", "networks", "ports", "volumes", "depends_on", "restart", "read_only", "user", "cap_drop",
    "security_opt", "stop_grace_period", "healthcheck", "profiles", "network_mode",
}
"""What a service may say here."""


class Project:
    """A compose file in a folder of its own, whose relative paths are looked for there."""

    def __init__(self, file: Path, engine: Engine, folder: Path) -> None:
        self.folder = folder / "compose"
        shutil.copytree(file.parent, self.folder, ignore=shutil.ignore_patterns("secrets"))
        text = yaml.safe_load((self.folder / file.name).read_text())
        self._engine = engine
        self._name: str = text["name"]
        self._services: dict[str, dict[str, Any]] = text["services"]
        self._volumes = set(text["volumes"])
        for name, service in self._services.items():
            self.need_known(name, service)
        for network, said in text["networks"].items():
            subnets = [f"--subnet={one['subnet']}" for one in said["ipam"]["config"]]
            engine.docker("network", "create", *subnets, f"{self._name}_{network}")

    @staticmethod
    def need_known(name: str, service: dict[str, Any]) -> None:
        """Fails if a service says something that this would overlook."""
        assert set(service) <= KNOWN, f"{name}: {set(service) - KNOWN}"

    def services_to_start(self) -> list[str]:
        """Returns the services that `up` starts, each behind those that it depends on."""
        order: list[str] = []
        for name, service in self._services.items():
            if "profiles" not in service:
                order += [one for one in [*service.get("depends_on", []), name] if one not in order]
        return order

    def run(self, name: str) -> None:
        """Runs a service to its end, after those that it depends on."""
        for needed in self._services[name].get("depends_on", []):
            self.run(needed)
        self._engine.docker("run", "--rm", *self._arguments(name))

    def start(self, name: str) -> None:
        """Starts a service."""
        self._engine.docker("run", "--detach", f"--name={self._name}-{name}-1", *self._arguments(name))

    def address(self, name: str) -> str:
        """Returns the IP address of a service."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self._engine.docker("inspect", f"--format={template}", f"{self._name}-{name}-1").strip()

    def _arguments(self, name: str) -> list[str]:
        service = self._services[name]
        arguments = [f"--{option.replace('_', '-')}={value}" for option in ("cap_drop", "security_opt")
                     for value in service.get(option, [])]
        arguments += [f"--publish={port}" for port in service.get("ports", [])]
        arguments += [f"--volume={self._volume(volume)}" for volume in service.get("volumes", [])]
        networks = service.get("networks", {})
        for network in networks:
            # Compose gives each service its name on each network.
            arguments += [f"--network={self._name}_{network}", f"--network-alias={name}"]
            if isinstance(networks, dict):
                arguments.append(f"--ip={networks[network]['ipv4_address']}")
        for option, value in [("user", service.get("user")), ("network", service.get("network_mode")),
                              ("restart", service.get("restart"))]:
            arguments += [f"--{option}={value}"] if value else []
        arguments += ["--read-only"] if service.get("read_only") else []
        arguments += ["--no-healthcheck"] if service.get("healthcheck", {}).get("disable") else []
        if "stop_grace_period" in service:
            arguments.append(f"--stop-timeout={service['stop_grace_period'].removesuffix('s')}")
        return [*arguments, service["image"], *service.get("command", [])]

    def _volume(self, text: str) -> str:
        source, _, rest = text.partition(":")
        if source in self._volumes:
            return f"{self._name}_{source}:{rest}"
        return f"{(self.folder / source).resolve()}:{rest}"
