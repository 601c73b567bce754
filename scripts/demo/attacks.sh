# What hostile code would try first. Runs inside a ring; every attempt must fail.
#
#   arguments: HOME of the user who started the demo, a process id of the host
#
# Each attempt is harmless where it succeeds: nothing is written, sent or killed.
home=$1 host_pid=$2
through=0

attempt() {
    what=$1
    shift
    if why=$("$@" 2>&1); then
        printf '  GOT THROUGH  %s\n' "$what"
        through=1
    else
        printf '  refused      %-44s %s\n' "$what" "$(printf %s "$why" | head -n 1 | sed 's/^.*: //')"
    fi
}

see_home() {
    [ -n "$(ls -A "$home")" ] || { echo "nothing there"; return 1; }
}

attempt "look into $home"                      see_home
attempt "read SSH keys"                        cat "$home"/.ssh/id_ed25519 "$home"/.ssh/id_rsa
attempt "read the password hashes"             cat /etc/shadow
attempt "take over the host by core_pattern"   sh -c ': >> /proc/sys/kernel/core_pattern'
attempt "connect to the internet"              timeout 2 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'
attempt "change a system program"              sh -c ': >> /bin/sh'
attempt "signal a process of the host"         sh -c "kill -0 $host_pid"
attempt "make a user namespace to be root in"  unshare --user true
attempt "make a mount namespace to hide things" unshare --mount true
exit "$through"
