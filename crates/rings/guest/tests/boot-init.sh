#!/bin/busybox sh
# PID 1 of the guest in boot.rs: loads modules, says READY to the host, tells what this kernel can
# do, and restarts the machine.
export PATH=/bin
/bin/busybox --install -s /bin

# Loads all modules of a directory in the order of their names; tells which could not be.
load() {
    for module in "$1"/*.ko; do
        [ ! -e "$module" ] || insmod "$module" 2>/dev/null || printf '%s ' "$module"
    done
}

# say NAME: standard input, on one line.
say() {
    echo "$1: $(tr -s '\n\t ' ' ' | sed 's/^ //; s/ $//')" >&3
}

mount -t devtmpfs devtmpfs /dev
mount -t sysfs sysfs /sys
mount -t proc proc /proc
failed=$(load /modules)

# Ports have numbers; their names come a moment after they do.
port=
while [ -z "$port" ]; do
    for entry in /sys/class/virtio-ports/*; do
        [ "$(cat "$entry/name" 2>/dev/null)" != ctl ] || port=${entry##*/}
    done
done
exec 3>"/dev/$port"
echo READY >&3

echo "$failed" | say failed
load /modules/more | say "failed more"
uname -r | say release
cat /proc/filesystems | say filesystems
ls /proc/self/ns | say namespaces
ls /dev | say devices
mount -t securityfs securityfs /sys/kernel/security
cat /sys/kernel/security/lsm | say lsm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cat /sys/fs/cgroup/cgroup.controllers | say controllers
cat /proc/sys/kernel/seccomp/actions_avail | say seccomp
cat /proc/net/ip_tables_targets | say targets
# Without a timer this would never end.
for processor in $(seq 0 $(($(nproc) - 1))); do
    taskset -c "$processor" sleep 0.05 && echo "$processor"
done | say "slept on"
cat /sys/devices/system/clocksource/clocksource0/current_clocksource | say clock
echo END >&3
reboot -f
