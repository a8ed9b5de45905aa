#!/usr/bin/env bash
# Makes the token by which Prometheus reads the nodes' metrics, unless there is one.
set -euo pipefail
cd "$(dirname "$0")"

[ ! -e secrets/tokens ] || { echo "secrets/tokens is there already"; exit 0; }
# The folder keeps others out. The files have to be readable to the containers' accounts, which are none of
# this machine's.
mkdir -p -m 0700 secrets
token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
printf '%s' "$token" > secrets/prometheus
printf 'prometheus read %s\n' "$token" > secrets/tokens
chmod 0444 secrets/prometheus secrets/tokens
