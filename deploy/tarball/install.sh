#!/usr/bin/env bash
# Installs Spillway where there is no dpkg, or removes it. Run it again with a newer tarball to upgrade.
#   ./install.sh [--prefix FOLDER]      below FOLDER instead of /, for images that are built
#   ./install.sh --remove [--purge]     --purge: config and state, too
set -euo pipefail
cd "$(dirname "$0")"

prefix="" remove=0 purge=0
while [ $# -gt 0 ]; do
  case "$1" in
    --prefix) prefix=${2:?--prefix wants a folder}; shift ;;
    --remove) remove=1 ;;
    --purge) purge=1 ;;
    *) echo "unknown: $1; known are --prefix FOLDER, --remove, --purge" >&2; exit 64 ;;
  esac
  shift
done
[ "$purge" = 0 ] || [ "$remove" = 1 ] || { echo "--purge goes with --remove" >&2; exit 64; }

# Systemd runs here, and the installation is its own.
is_live() { [ -z "$prefix" ] && [ -d /run/systemd/system ]; }

if [ "$remove" = 1 ]; then
  if is_live; then systemctl disable --now spillway.service || true; fi
  rm -f "$prefix/usr/bin/spillway" "$prefix/etc/systemd/system/spillway.service"
  rm -rf "$prefix/usr/lib/spillway"
  if is_live; then systemctl daemon-reload; fi
  if [ "$purge" = 1 ]; then
    rm -f "$prefix/etc/spillway/spillway.toml"
    rm -rf "$prefix/var/lib/spillway" "$prefix/var/lib/private/spillway"
    # Keys are the operator's own: with some there, the folders stay.
    rmdir "$prefix/etc/spillway/keys" "$prefix/etc/spillway" 2>/dev/null || true
  fi
  exit
fi

install -D -m 0755 spillway "$prefix/usr/bin/spillway"
install -D -m 0644 spillway.service "$prefix/etc/systemd/system/spillway.service"
install -d -m 0755 "$prefix/etc/spillway"
install -d -m 0750 "$prefix/etc/spillway/keys"
# A config that is there is the operator's.
[ -e "$prefix/etc/spillway/spillway.toml" ] || install -m 0644 spillway.toml "$prefix/etc/spillway/spillway.toml"
if [ -z "$prefix" ]; then
  getent group spillway >/dev/null || groupadd --system spillway
  chgrp spillway /etc/spillway/keys
fi
if is_live; then
  systemctl daemon-reload
  systemctl try-restart spillway.service
fi
