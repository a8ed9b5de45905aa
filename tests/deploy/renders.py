"""What modules/region tells its machines, for three regions, rendered by Terraform."""

import shutil
from pathlib import Path

from machines import SUBNET
from needs import ROOT
from terraform import Terraform

TEMPLATES = ROOT / "terraform/modules/region/templates"
REGIONS = {"us-east-1": "US", "eu-central-1": "DE", "ap-northeast-1": "JP"}
CLUSTER = "boot"
SECRETS = ["ca.pem", "node.pem", "node-key.pem", "prefix.key"]
MONITORED = "eu-central-1"
"""Its admin listener is open to monitoring, by TLS and with a token. It sends backups to S3."""
ADMIN_NAME = f"{MONITORED}.{MONITORED}.spillway"
BACKUPS = f"s3://backups/spillway/{CLUSTER}/{MONITORED}"
# Its private key is lost: that of a page on age.
BACKUP_KEY = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
OPERATOR_TOKEN = "token-of-prometheus-5b1f7c0a94e3"

ROOT_MODULE = """
variable "machines" { type = any }

locals {
  prepare = {
    for name, values in var.machines :
    name => templatefile("${path.module}/prepare.sh.tftpl", values.prepare)
  }
}

output "config" {
  value = {
    for name, values in var.machines :
    name => templatefile("${path.module}/spillway.toml.tftpl", values.config)
  }
}

output "prepare" {
  value = local.prepare
}

output "user_data" {
  value = {
    for name, prepare in local.prepare :
    name => templatefile("${path.module}/user-data.yaml.tftpl", {
      prepare_gz_b64  = base64gzip(prepare)
      backup_calendar = var.machines[name].prepare.backup_url == "" ? "" : "hourly"
    })
  }
}
"""


def tables(region: str, number: int, join: bool) -> dict:
    """The tables of a node's config that modules/region fills."""
    keys = "/etc/spillway/keys"
    monitored = region == MONITORED
    return {
        "node": {
            "name": region,
            "region": region,
            "country": REGIONS[region],
            "drain_notice_ms": 25000,
            "drain_ms": 30000,
        },
        "auth": {"mode": "keys"},
        "admin": {
            "address": "0.0.0.0:9900" if monitored else "127.0.0.1:9900",
            "names": [ADMIN_NAME] if monitored else None,
            "tls.certificate": f"{keys}/node.pem" if monitored else None,
            "tls.key": f"{keys}/node-key.pem" if monitored else None,
            "token_file": f"{keys}/admin.tokens" if monitored else None,
        },
        "cluster": {
            "id": CLUSTER,
            "address": "0.0.0.0:7946",
            "advertise": f"{SUBNET}.{number}:7946",
            "ca": f"{keys}/ca.pem",
            "certificate": f"{keys}/node.pem",
            "key": f"{keys}/node-key.pem",
            "prefix_key": f"{keys}/prefix.key",
            "data": "/var/lib/spillway",
            "join_token_file": f"{keys}/join.token" if join else None,
        },
    }


def values(region: str, number: int, key: str, prepare: dict, join: bool = False) -> dict:
    """What modules/region gives its templates (`template_values`) for one of the regions."""
    monitored = region == MONITORED
    peers = [
        {"name": other, "region": other, "address": f"{SUBNET}.{its}:7946", "in_config": True}
        for its, other in enumerate(REGIONS, start=11)
        if other != region
    ]
    # One place at a time, so that a second request has to go elsewhere.
    replica = {
        "name": f"{region}-a",
        "url": f"http://{SUBNET}.1:{9100 + number}",
        "models": ["tiny"],
        "kind": None,
        "pool": None,
        "weight": 2,
        "connections_max": 1,
    }
    return {
        "config": {
            "tables": tables(region, number, join),
            "own_lines": {"node": "expose_routing = true", "auth": "", "admin": "", "cluster": ""},
            "own_keys": {"node": ["expose_routing"], "auth": [], "admin": [], "cluster": []},
            "client_address": "0.0.0.0:8080",
            "peers": peers,
            "rtts_ms": {peer["region"]: 80 for peer in peers},
            "replicas": [replica],
            "discoveries": [],
            "trusted_proxies": [],
            "config": key,
        },
        "prepare": {
            "name": region,
            "region": region,
            "log_group": f"/spillway/{CLUSTER}/{region}",
            "group_name": f"spillway-{CLUSTER}-{region}",
            "started_hook": "started",
            "admin_name": ADMIN_NAME if monitored else "",
            "backup_url": BACKUPS if monitored else "",
            "backup_key": BACKUP_KEY if monitored else "",
            "parameter_path": f"/spillway/{CLUSTER}/{region}",
            "required": [*SECRETS, "spillway.toml"],
            **prepare,
        },
    }


def parameter(region: str, file: str) -> str:
    return f"/spillway/{CLUSTER}/{region}/{file}"


def render(folder: Path, machines: dict) -> dict:
    """Renders the templates as modules/region does, by Terraform."""
    folder.mkdir()
    for template in TEMPLATES.iterdir():
        shutil.copy(template, folder)
    (folder / "main.tf").write_text(ROOT_MODULE)
    terraform = Terraform(folder, {"machines": machines})
    terraform.init()
    terraform.apply()
    return terraform.outputs()
