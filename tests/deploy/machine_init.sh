#!/usr/bin/env bash
# Becomes the first process of a throw-away machine; machine.py calls it in namespaces of its own.
set -euo pipefail
mount --make-rprivate /
# All that is written stays in memory, and goes with the namespace.
store=/run/spillway-machine
mkdir -p "$store"
mount -t tmpfs tmpfs "$store"
mkdir "$store"/{upper,work,root}
root=$store/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$store/upper,workdir=$store/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
  touch "$root/dev/$node"
  mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ip link set lo up
# This machine may keep packages from starting what they bring; there, they may.
rm -f "$root/usr/sbin/policy-rc.d"
# Nothing of what this machine starts at boot: a journal and nothing else.
mkdir -p "$root/run/systemd/system"
cat > "$root/run/systemd/system/throwaway.target" <<'UNIT'
[Unit]
Requires=systemd-journald.service
After=systemd-journald.service
DefaultDependencies=no
UNIT
exec chroot "$root" env -i container=throwaway PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=throwaway.target --log-target=journal --show-status=no
