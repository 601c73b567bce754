#!/bin/busybox sh
# The first process of an emulated machine, in its initramfs: loads modules, mounts the root file
# system and the disk with what changes from run to run, and goes on with `start.sh` from there.
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

stop() {
    echo "lab: the machine cannot start: $*" >/dev/console
    sync
    poweroff -f
    # The host ends a machine that cannot even do that.
    while :; do sleep 60; done
}

for module in /modules/*.ko; do
    insmod "$module" || stop "the module ${module##*/} does not load"
done
for wanted in $(tr ' ' '\n' </proc/cmdline | sed -n 's/^lab\.modules=//p' | tr ',' ' '); do
    [ -d "/more/$wanted" ] || stop "there is no module $wanted in this initramfs"
    for module in "/more/$wanted"/*.ko; do
        insmod "$module" || stop "the module ${module##*/} does not load"
    done
done

# The disks may take a moment to appear.
tries=0
while [ ! -b /dev/vdb ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || stop "a disk is missing"
    sleep 0.1
done
mount -t ext4 /dev/vda /root || stop "the root file system does not mount"
mount -t ext4 -o ro /dev/vdb /root/lab || stop "the disk with the programs does not mount"
for directory in proc sys dev; do
    mount --move "/$directory" "/root/$directory" || stop "/$directory does not move"
done
exec switch_root /root /lab/start.sh
stop "start.sh does not run"
