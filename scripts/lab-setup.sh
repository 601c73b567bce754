#!/usr/bin/env bash
# Gets what `make lab` boots: QEMU, Debian kernels, one root file system and one container image.
# Nothing is installed on this machine; everything comes from Debian packages and ends up in
# ${RINGWALL_CACHE:-~/.cache/ringwall}/lab:
#
#   qemu/                  QEMU with its libraries
#   kernels/NAME/          vmlinuz, initramfs and release, for each name in KERNELS below
#   root.ext4              the root file system, the same for all machines
#   image/                 the container image that jobs use (an OCI layout)
#   guest-kernels/         the kernel that microVMs inside the machines boot
#
#   scripts/lab-setup.sh            quick when all is there
#   scripts/lab-setup.sh refresh    everything again, with the newest packages
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/modules.sh
source scripts/modules.sh

# Name, suite and package. `newest` is the newest kernel that the package registry has. `minimal` is
# the flavour for guests of clouds, without most drivers.
readonly KERNELS="6.1:bookworm:linux-image-amd64
    6.12:bookworm-backports:linux-image-amd64
    newest:sid:linux-image-amd64
    minimal:bookworm:linux-image-cloud-amd64"
readonly QEMU_SUITE=bookworm-backports
readonly ROOT_SUITE=bookworm
readonly ROOT_PACKAGES="base-files bash dash coreutils util-linux mount grep sed findutils hostname
    procps python3 git busybox-static apparmor kmod qemu-system-x86"
readonly ROOT_MIB=1536

# Without these there is no root file system and no channel to the host.
readonly BOOT_MODULES="virtio_pci virtio_blk virtio_console crc32c_generic ext4 overlay"
# Loaded where a machine asks for them.
readonly MORE_MODULES="kvm_amd"

fail() {
    printf 'lab-setup: %s\n' "$*" >&2
    exit 1
}

# --- packages -----------------------------------------------------------------------------------

# The mirror that this machine's own apt uses for Debian.
debian_mirror() {
    # shellcheck disable=SC2016 # the names are apt's
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
        awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}

# apt SUITE COMMAND...: with lists and a cache of its own, in which no package counts as installed.
apt() {
    local suite=$1 command=$2 state=$lab/apt/$1
    shift 2
    "$command" -q -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
        -o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)" \
        -o APT::Default-Release="$suite" -o APT::Install-Recommends=false "$@"
}

prepare_apt() {
    local suite=$1 state=$lab/apt/$1 mirror options='' part
    [ ! -e "$state/ready" ] || return 0
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || fail "apt on this machine knows no Debian mirror; as root run: apt-get update"
    [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
        options='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    : >"$state/status"
    # Backports hold only what is newer than in the suite that they are for.
    for part in "${suite%-backports}" "$suite"; do
        echo "deb $options $mirror $part main"
    done | sort -u >"$state/sources.list"
    apt "$suite" apt-get update >"$state/log" 2>&1 ||
        { cat "$state/log" >&2 && fail "the package lists of $suite cannot be fetched"; }
    touch "$state/ready"
}

# unpack_with_dependencies SUITE TREE PACKAGE...
unpack_with_dependencies() {
    local suite=$1 tree=$2 archives=$lab/apt/$1/archives file
    shift 2
    prepare_apt "$suite"
    apt "$suite" apt-get clean
    apt "$suite" apt-get -y --download-only install "$@" >"$lab/apt/$suite/log" 2>&1 ||
        { cat "$lab/apt/$suite/log" >&2 && fail "could not fetch $* from $suite"; }
    for file in "$archives"/*.deb; do
        # Packages hold /bin and /lib as directories; in the tree these are links into /usr.
        dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink -C "$tree"
    done
    apt "$suite" apt-get clean
}

# dependencies SUITE PACKAGE PATTERN: those called linux-PATTERN.
dependencies() {
    apt "$1" apt-cache depends "$2" | sed -nE "s/^ *Depends: (linux-($3).*)\$/\\1/p"
}

# unpack SUITE PACKAGE TREE: the package alone. It is kept for the next time.
unpack() {
    local suite=$1 package=$2 tree=$3 kept=$lab/apt/$1/kept/$2
    mkdir -p "$kept"
    (cd "$kept" && apt "$suite" apt-get download "$package" >"$lab/apt/$suite/log" 2>&1) ||
        { cat "$lab/apt/$suite/log" >&2 && fail "could not fetch $package from $suite"; }
    dpkg-deb -x "$kept"/*.deb "$tree"
}

make_tree() {
    local tree=$1 directory
    mkdir -p "$tree"/usr/{bin,sbin,lib,lib64}
    for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$tree/$directory"; done
}

# --- what is made from them ---------------------------------------------------------------------

make_qemu() {
    echo "lab-setup: QEMU from $QEMU_SUITE"
    make_tree "$making/qemu"
    unpack_with_dependencies "$QEMU_SUITE" "$making/qemu" qemu-system-x86
    [ -x "$making/qemu/usr/bin/qemu-system-x86_64" ] || fail "the package holds no qemu-system-x86_64"
}

# make_kernel NAME SUITE PACKAGE
make_kernel() {
    local name=$1 suite=$2 meta=$3 package part release tree=$making/package initramfs=$making/initramfs modules
    local result=$making/kernels/$name
    prepare_apt "$suite"
    package=$(dependencies "$suite" "$meta" 'image-[0-9]' | head -n 1)
    [ -n "$package" ] || fail "$suite has no package $meta"
    echo "lab-setup: kernel $name: $package from $suite"
    rm -rf "$tree" "$initramfs"
    mkdir -p "$tree" "$initramfs/bin" "$result"
    # Newer packages hold the kernel and its modules apart.
    for part in $(dependencies "$suite" "$package" 'binary-|modules-') "$package"; do
        unpack "$suite" "$part" "$tree"
    done
    modules=$(find "$tree"/lib/modules "$tree"/usr/lib/modules -mindepth 1 -maxdepth 1 2>/dev/null | head -n 1) || true
    [ -n "$modules" ] || fail "$package has no modules"
    release=${modules##*/}

    find_modules "$modules"
    # Newer kernels have some of them built in under other names: what is missing shows at the boot.
    # shellcheck disable=SC2086 # the lists are words
    put_modules "$initramfs/modules" may $BOOT_MODULES
    local more
    for more in $MORE_MODULES; do
        [ -z "${module_file[$more]:-}" ] || put_modules "$initramfs/more/$more" must "$more"
    done
    cp "$making/root/bin/busybox" "$initramfs/bin/"
    install -m 755 tests/lab/guest/init.sh "$initramfs/init"
    (cd "$initramfs" && find . | sort | "$initramfs/bin/busybox" cpio -o -H newc 2>/dev/null) >"$result/initramfs"
    cp "$(find "$tree/boot" "$modules" -maxdepth 1 -name 'vmlinuz*' 2>/dev/null | head -n 1)" "$result/vmlinuz"
    printf '%s\n' "$release" >"$result/release"
    rm -rf "$tree" "$initramfs"
}

make_root() {
    local root=$making/root
    echo "lab-setup: the root file system from $ROOT_SUITE"
    make_tree "$root"
    # shellcheck disable=SC2086 # the list is words
    unpack_with_dependencies "$ROOT_SUITE" "$root" $ROOT_PACKAGES
    [ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
    mkdir -p "$root"/{lab,dev,proc,sys,run,tmp,root,home/user}
    chmod 1777 "$root/tmp" "$root/var/tmp"
    printf '%s\n' root:x:0:0:root:/root:/bin/bash user:x:1000:1000:user:/home/user:/bin/bash \
        nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin >"$root/etc/passwd"
    printf '%s\n' root:x:0: user:x:1000: nogroup:x:65534: >"$root/etc/group"
    printf '%s\n' 'root:*:19000:0:99999:7:::' 'user:*:19000:0:99999:7:::' >"$root/etc/shadow"
    chmod 640 "$root/etc/shadow"
    echo lab >"$root/etc/hostname"
    printf '%s\n' '127.0.0.1 localhost lab' >"$root/etc/hosts"
    rm -rf "$root"/usr/share/{doc,man,locale,info}
}

make_root_disk() {
    local -a as_root=()
    # All files in the tree are this user's; on the disk they are root's.
    [ "$(id -u)" = 0 ] || as_root=(unshare --map-root-user)
    "${as_root[@]}" mke2fs -q -t ext4 -O ^has_journal -m 0 -L lab-root -d "$making/root" \
        "$making/root.ext4" "${ROOT_MIB}M" >/dev/null || fail "the root file system cannot be made"
}

make_image() {
    local root=$making/image-root applet
    local -a rootless=()
    [ "$(id -u)" = 0 ] || rootless=(--rootless)
    echo "lab-setup: the container image"
    mkdir -p "$root"/{bin,tmp,etc}
    cp "$making/root/bin/busybox" "$root/bin/"
    for applet in sh ls cat id ps dd sleep true false echo wc mkdir rm sed grep test; do
        ln -s busybox "$root/bin/$applet"
    done
    echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
    umoci init --layout "$making/image"
    umoci new --image "$making/image:lab"
    umoci insert "${rootless[@]}" --image "$making/image:lab" "$root" / 2>/dev/null
    # Ordinary users of the machines read it, too.
    chmod -R a+rX "$making/image"
    rm -rf "$root"
}

# For microVMs inside the machines: the same as `make setup` gets for this machine.
make_guest_kernel() {
    local code=0
    echo "lab-setup: the kernel for microVMs in the machines"
    RINGWALL_KERNELS=$making/guest-kernels scripts/guest-kernel.sh || code=$?
    [ "$code" = 0 ] || fail "the kernel for microVMs cannot be made; see above"
}

# --- all of it ----------------------------------------------------------------------------------

main() {
    local kernel part
    case "${1:-}" in
        '') ;;
        refresh) ;;
        *) fail "usage: scripts/lab-setup.sh [refresh]" ;;
    esac
    command -v apt-get >/dev/null 2>&1 || fail "the lab is made from Debian packages, and there is no apt-get here"
    needs_command mke2fs e2fsprogs
    needs_command umoci umoci
    lab=${RINGWALL_CACHE:-$HOME/.cache/ringwall}/lab
    umask 022
    mkdir -p "$lab"
    local lock recipe
    exec {lock}>"$lab/.setup.lock"
    flock "$lock"
    recipe=$(cat "$0" scripts/modules.sh scripts/guest-kernel.sh tests/lab/guest/init.sh | sha256sum | head -c 16)
    if [ "${1:-}" != refresh ] && [ "$(cat "$lab/recipe" 2>/dev/null)" = "$recipe" ]; then return; fi

    # What a killed set-up left.
    rm -rf "$lab"/.making.* "$lab/recipe"
    [ "${1:-}" != refresh ] || rm -rf "$lab/apt"
    making=$(mktemp -d "$lab/.making.XXXXXX")
    trap 'rm -rf "$making"' EXIT
    make_root
    for kernel in $KERNELS; do
        IFS=: read -r name suite package <<<"$kernel"
        make_kernel "$name" "$suite" "$package"
    done
    make_qemu
    make_image
    make_guest_kernel
    make_root_disk
    for part in qemu kernels image guest-kernels root.ext4; do
        rm -rf "${lab:?}/$part"
        mv "$making/$part" "$lab/$part"
    done
    printf '%s\n' "$recipe" >"$lab/recipe"
    echo "lab-setup: $lab"
}

main "$@"
