#!/usr/bin/env bash
# Becomes the first process of a machine: this one's root below a layer that takes all that is written, devices, /proc, /run and
# /tmp of its own. Run it in new mount, process, host name and network namespaces.
#   machine.sh FOLDER VOLUME_DEVICE VOLUME_ID FOLDER_OF_TOOLS...
set -euo pipefail
folder="$1" device="$2" volume="$3"
shift 3

mount -t tmpfs -o size=2g,mode=0755 layer "$folder"
mkdir "$folder"/{upper,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" overlay "$folder/root"
cd "$folder/root"

mount -t proc proc proc
mount -t sysfs -o ro sys sys
mount -t tmpfs -o mode=0755 run run
mount -t tmpfs -o mode=0755 dev dev
for node in null zero full random urandom tty "${device#/dev/}"; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
ln -s /proc/self/fd dev/fd
# As udev names a volume of EC2 on machines with NVMe.
mkdir -p dev/disk/by-id
ln -s "../..${device#/dev}" "dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${volume/-/}"

# Real folders that other file systems may hide, and what the tests lay into the machine.
for tools in "$@"; do
  mkdir -p "./$tools"
  mount --rbind "$tools" "./$tools"
done
exec chroot . sleep infinity
