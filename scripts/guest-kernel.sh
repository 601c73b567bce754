#!/usr/bin/env bash
# Gets the kernel that microVMs boot: Debian's cloud kernel, taken apart. Nothing is installed.
#
#   scripts/guest-kernel.sh                            quick when the current one is there
#   scripts/guest-kernel.sh extract BZIMAGE VMLINUX    only unpack one kernel image
#
# Result: KERNELS/debian-RELEASE/
#   vmlinux        uncompressed: QEMU starts it without the guest having to unpack it
#   modules/       what the guest loads at its start, NN-name.ko in load order
#   more/          what it loads when asked to (networks and firewalls of containers), likewise
#   kernel.json    what it is and where it is from
# KERNELS is $RINGWALL_KERNELS; else, for root, /var/lib/ringwall/kernels; else
# ${XDG_DATA_HOME:-~/.local/share}/ringwall/kernels. Packages are kept in
# ${RINGWALL_CACHE:-~/.cache/ringwall}/kernels.
#
# Exit code 3: this system has no such package.
set -euo pipefail
# shellcheck source=scripts/modules.sh
source "$(dirname "$0")/modules.sh"

readonly META_PACKAGE=linux-image-cloud-amd64

# Without these there is no channel to the host and no root file system.
readonly AT_BOOT="virtio virtio_ring virtio_mmio virtio_console virtio_blk libcrc32c erofs squashfs
    overlay vsock vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport"

# What a container engine inside the guest asks for, and devices that only some monitors have.
# Which of them exist differs between releases; those that do not are left out.
readonly ON_REQUEST="virtio_pci virtio_rng virtio_balloon
    loop fuse tun veth dummy bridge br_netfilter macvlan ipvlan vxlan
    nf_conntrack nf_conntrack_netlink nf_nat nf_tables nft_compat nft_ct nft_chain_nat nft_nat
    nft_masq nft_redir nft_reject nft_reject_inet nft_reject_ipv4 nft_reject_ipv6 nft_limit nft_log
    nft_counter nft_hash nft_numgen nft_fib nft_fib_inet nft_fib_ipv4 nft_fib_ipv6 nft_objref
    ip_tables iptable_filter iptable_nat iptable_mangle iptable_raw ipt_REJECT
    ip6_tables ip6table_filter ip6table_nat ip6table_mangle ip6table_raw ip6t_REJECT
    xt_addrtype xt_comment xt_conntrack xt_limit xt_LOG xt_mark xt_MASQUERADE xt_multiport xt_nat
    xt_owner xt_REDIRECT xt_state xt_statistic xt_tcpudp xt_TCPMSS"

fail() {
    printf 'guest-kernel: %s\n' "$*" >&2
    exit 1
}

# --- one kernel image ---------------------------------------------------------------------------

# integer FILE OFFSET BYTES: little-endian, as all numbers in the boot header.
integer() {
    od -An -v --endian=little -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '
}

# The program that unpacks what starts with these four bytes, in hexadecimal.
unpacker() {
    case "$1" in
        1f8b*) needs_command gzip gzip && echo gzip ;;
        fd377a58) needs_command xz xz-utils && echo xz ;;
        28b52ffd) needs_command zstd zstd && echo zstd ;;
        02214c18) needs_command lz4 lz4 && echo lz4 ;;
        *) fail "compressed in a way that is not known here (it starts with $1)" ;;
    esac
}

# The boot protocol's header (Documentation/arch/x86/boot.rst in the kernel's sources) tells where
# the compressed kernel is, so there is no need to search for something that looks like one.
extract() {
    local image=$1 result=$2
    local sectors start length magic program size
    # "HdrS"
    [ "$(integer "$image" $((0x202)) 4)" = $((0x53726448)) ] || fail "$image is no kernel image (bzImage)"
    [ "$(integer "$image" $((0x206)) 2)" -ge $((0x208)) ] || fail "$image has a boot header older than 2.08"
    sectors=$(integer "$image" $((0x1f1)) 1)
    # By the protocol, none means four.
    [ "$sectors" != 0 ] || sectors=4
    start=$(((sectors + 1) * 512 + $(integer "$image" $((0x248)) 4)))
    length=$(integer "$image" $((0x24c)) 4)
    [ "$length" -gt 8 ] && [ $((start + length)) -le "$(stat -c %s "$image")" ] || fail "$image is cut short"

    magic=$(od -An -v -t x1 -j "$start" -N 4 "$image" | tr -d ' ')
    program=$(unpacker "$magic")
    # The size of the contents stands behind them; with gzip it is part of the format.
    size=$(integer "$image" $((start + length - 4)) 4)
    [ "$program" = gzip ] || length=$((length - 4))
    dd if="$image" bs=1M iflag=skip_bytes,count_bytes,fullblock skip="$start" count="$length" status=none |
        "$program" -dc >"$result" ||
        fail "$image does not unpack with $program"
    [ "$(stat -c %s "$result")" = "$size" ] || fail "$image unpacks to a wrong size"
    [ "$(head -c 4 "$result" | od -An -t x1 | tr -d ' ')" = 7f454c46 ] || fail "$image holds no ELF file"
}

# --- the package --------------------------------------------------------------------------------

update_lists() {
    echo "guest-kernel: fetching the package lists"
    if [ "$(id -u)" = 0 ]; then
        apt-get -q update
    elif command -v sudo >/dev/null 2>&1; then
        sudo apt-get -q update
    else
        fail "the package lists are missing or old; as root run: apt-get update"
    fi
}

# What the meta package stands for now; empty where the lists do not know it.
current_package() {
    apt-cache depends "$META_PACKAGE" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

# field NAME PACKAGE: of the version that would be installed.
field() {
    apt-cache show --no-all-versions "$2" | sed -n "s/^$1: //p" | head -n 1
}

# By checksum: the lists are signed, so the file is what they promise even when it was here before.
has_checksum() {
    [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$2  -" ]
}

fetch_package() {
    local package=$1 file=$2 directory
    has_checksum "$file" "$(field SHA256 "$package")" && return
    directory=$(mktemp -d "${file%/*}/fetch.XXXXXX")
    echo "guest-kernel: fetching $package"
    # As oneself: apt's own user may not enter this directory.
    (cd "$directory" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "$package") ||
        { update_lists && (cd "$directory" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "$package"); } ||
        { rm -rf "$directory" && fail "could not fetch $package"; }
    mv "$directory"/*.deb "$file"
    rm -rf "$directory"
    has_checksum "$file" "$(field SHA256 "$package")" || fail "$file is not what the package lists promise"
}

take_apart() {
    local file=$1 release=$2 result=$3
    local tree=$result/tree
    mkdir -p "$tree"
    dpkg-deb -x "$file" "$tree"
    extract "$tree/boot/vmlinuz-$release" "$result/vmlinux"
    local modules
    modules=$(find "$tree/lib/modules/$release" "$tree/usr/lib/modules/$release" -maxdepth 0 2>/dev/null | head -n 1) || true
    [ -n "$modules" ] || fail "$file has no modules"
    find_modules "$modules"
    # shellcheck disable=SC2086 # the lists are words
    put_modules "$result/modules" must $AT_BOOT
    # shellcheck disable=SC2086
    put_modules "$result/more" may $ON_REQUEST
    rm -rf "$tree"
}

main() {
    local kernels cache package release version recipe known
    if [ "$(id -u)" = 0 ]; then kernels=/var/lib/ringwall/kernels; else kernels=${XDG_DATA_HOME:-$HOME/.local/share}/ringwall/kernels; fi
    kernels=${RINGWALL_KERNELS:-$kernels}
    cache=${RINGWALL_CACHE:-$HOME/.cache/ringwall}/kernels
    umask 022

    if ! command -v apt-get >/dev/null 2>&1; then
        echo "guest-kernel: no apt-get here, so no $META_PACKAGE" >&2
        exit 3
    fi
    # A changed script may keep other modules: what an older one made is made anew.
    recipe=$(cat "$0" "${0%/*}/modules.sh" | sha256sum | head -c 16)
    # Asking apt takes a second or two, so only after its lists have changed.
    for known in "$kernels"/debian-*/kernel.json; do
        [ "$known" -nt /var/lib/apt/lists ] && grep -q "\"$recipe\"" "$known" && return
    done

    package=$(current_package)
    if [ -z "$package" ]; then
        update_lists || true
        package=$(current_package)
    fi
    if [ -z "$package" ]; then
        echo "guest-kernel: this system has no package $META_PACKAGE" >&2
        exit 3
    fi
    release=${package#linux-image-}
    version=$(field Version "$package")

    local description
    description=$(printf '{"flavour":"debian","release":"%s","package":"%s","version":"%s","recipe":"%s"}' \
        "$release" "$package" "$version" "$recipe")
    local place=$kernels/debian-$release
    if [ "$(cat "$place/kernel.json" 2>/dev/null)" = "$description" ]; then
        touch "$place/kernel.json"
        return
    fi

    mkdir -p "$kernels" "$cache"
    local lock
    exec {lock}>"$kernels/.lock"
    flock "$lock"
    # Whoever held the lock may have made it.
    [ "$(cat "$place/kernel.json" 2>/dev/null)" != "$description" ] || return 0

    local file=$cache/${package}_${version//[^A-Za-z0-9.+~-]/_}.deb
    fetch_package "$package" "$file"
    making=$(mktemp -d "$kernels/.making.XXXXXX")
    trap 'rm -rf "$making"' EXIT
    chmod 755 "$making"
    take_apart "$file" "$release" "$making"
    printf '%s\n' "$description" >"$making/kernel.json"
    find "$making" -type f -exec chmod 444 {} +
    # A running VM has its files open; new ones find the old or the new.
    rm -rf "$kernels/.old"
    [ ! -e "$place" ] || mv "$place" "$kernels/.old"
    mv "$making" "$place"
    rm -rf "$kernels/.old"
    echo "guest-kernel: $place"
}

if [ "${1:-}" = extract ]; then
    [ $# = 3 ] || fail "usage: scripts/guest-kernel.sh extract BZIMAGE VMLINUX"
    extract "$2" "$3"
else
    [ $# = 0 ] || fail "usage: scripts/guest-kernel.sh [extract BZIMAGE VMLINUX]"
    main
fi
