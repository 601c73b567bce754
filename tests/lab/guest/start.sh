#!/bin/sh
# Makes the machine what its file says, then serves jobs until the host has no more of them.
# machine.env beside this file has the values; src/disk.rs writes it.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8

stop() {
    echo "lab: the machine cannot start: $*"
    sync
    busybox poweroff -f
}

. /lab/machine.env || stop "machine.env cannot be read"

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/pts /dev/shm /run/lock /run/user/1000
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t securityfs securityfs /sys/kernel/security
hostname lab
busybox ifconfig lo 127.0.0.1 up
mkdir -p /usr/local/bin
mount --bind /lab/bin /usr/local/bin || stop "the programs cannot be shown in /usr/local/bin"

if [ "$READ_ONLY_ROOT" = yes ]; then
    # As such systems do: what must be written is in memory.
    for directory in /tmp /var /home /root; do
        mount -t tmpfs -o mode=755 tmpfs "$directory" || stop "no tmpfs on $directory"
    done
    mkdir -p /var/tmp /var/lib /home/user
    chmod 1777 /tmp /var/tmp
    mount -o remount,ro / || stop "the root file system does not become read-only"
fi
chown 1000:1000 /home/user /run/user/1000
chmod 700 /run/user/1000 /root

v1_controllers() {
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in memory pids cpu,cpuacct cpuset freezer devices blkio; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" ||
            stop "this kernel has no v1 controller $controller"
    done
}

# As systemd lays it out: services and sessions in groups of their own, and for each user one
# subtree below which the user may make groups.
v2_tree() {
    mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup || stop "this kernel has no cgroup v2"
    cd /sys/fs/cgroup
    mkdir -p init.scope system.slice/lab.service user.slice/user-1000.slice
    echo $$ >init.scope/cgroup.procs
    for group in . user.slice user.slice/user-1000.slice; do
        echo "+cpu +memory +pids" >"$group/cgroup.subtree_control" || stop "no controllers in $group"
    done
    mkdir -p "user.slice/user-1000.slice/session-1.scope"
    cd /
}

delegate_to_user() {
    user_tree=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service
    mkdir -p "$user_tree/app.slice/job.scope"
    chown -R 1000:1000 "$user_tree"
    # Not the limits of the subtree itself, which stay its owner's.
    find "$user_tree" -maxdepth 1 -type f | xargs chown 0:0
    chown 1000:1000 "$user_tree/cgroup.procs" "$user_tree/cgroup.threads" "$user_tree/cgroup.subtree_control"
    echo "+cpu +memory +pids" >"$user_tree/cgroup.subtree_control"
}

case "$CGROUPS" in
    v2) v2_tree ;;
    v2-delegated) v2_tree && delegate_to_user ;;
    v1) v1_controllers ;;
    hybrid)
        v1_controllers
        mkdir /sys/fs/cgroup/unified
        mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
        ;;
    none) ;;
    *) stop "cgroup mode $CGROUPS is not known" ;;
esac

if [ -n "$APPARMOR_PROFILES" ]; then
    for profile in $APPARMOR_PROFILES; do
        apparmor_parser -r "/lab/apparmor/$profile" || stop "the AppArmor profile $profile does not load"
        grep -q "^$profile (enforce)" /sys/kernel/security/apparmor/profiles ||
            stop "the AppArmor profile $profile is not enforced"
    done
fi
while read -r setting; do
    [ -z "$setting" ] || sysctl -q -w "$setting" || stop "sysctl $setting is refused"
done </lab/sysctls
if [ -n "$PROC_OPTIONS" ]; then
    mount -o "remount,$PROC_OPTIONS" /proc || stop "/proc does not take $PROC_OPTIONS"
fi

# Jobs that look for leftovers compare with this.
sh /lab/look.sh >/run/lab-before
chmod 644 /run/lab-before
ringwall-lab agent
echo "lab: no more jobs"
sync
busybox poweroff -f
