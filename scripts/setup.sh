#!/usr/bin/env bash
# Installs what building, testing and measuring Ringwall needs and this machine lacks.
#
#   scripts/setup.sh [demo|test|bench|fuzz|lab|all]     default: test
#
# Looks for commands, not packages, so it is quick and needs no network when all is there.
# Starts from Debian's base image and rustup; elsewhere it says what is missing and stops.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MUSL_TARGET=x86_64-unknown-linux-musl

# command:package, by what needs them.
readonly FOR_BUILD="cc:gcc make:make musl-gcc:musl-tools"
readonly FOR_TOOLS="python3:python3 python3-venv:python3-venv"
readonly FOR_DEMO="umoci:umoci busybox:busybox-static"
readonly FOR_TEST="skopeo:skopeo cpio:cpio docker-registry:docker-registry apparmor_parser:apparmor openssl:openssl perl:perl-base setpriv:util-linux curl:curl git:git fsck.erofs:erofs-utils dockerd:docker.io initdb:postgresql runc:runc"
# What unpacks a guest kernel depends on the Debian release that it is from.
readonly FOR_VM="qemu-system-x86_64:qemu-system-x86 xz:xz-utils zstd:zstd lz4:lz4"
# Everything else that the lab boots it unpacks from packages without installing them.
readonly FOR_LAB="mke2fs:e2fsprogs umoci:umoci xz:xz-utils zstd:zstd setpriv:util-linux"
# libFuzzer is C++.
readonly FOR_FUZZ="c++:g++"
readonly FOR_BENCH="bwrap:bubblewrap crun:crun runc:runc dockerd:docker.io node:nodejs squid:squid tinyproxy:tinyproxy"

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Root's tools live in sbin directories that an ordinary user's PATH may lack.
has_command() {
    PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1
}

# Images made from it have no libraries, so a dynamically linked busybox is as good as none.
has_static_busybox() {
    has_command busybox && ! ldd "$(command -v busybox)" >/dev/null 2>&1
}

# Debian keeps the server's programs out of PATH, by version.
has_initdb() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

# A part of Python that Debian keeps in a package of its own.
has_venv() {
    python3 -c 'import ensurepip' >/dev/null 2>&1
}

missing_packages() {
    local pair command package
    for pair in "$@"; do
        command=${pair%%:*} package=${pair#*:}
        case "$command" in
            busybox) has_static_busybox ;;
            python3-venv) has_venv ;;
            initdb) has_initdb ;;
            *) has_command "$command" ;;
        esac || echo "$package"
    done
}

install_packages() {
    local -a as_root=()
    if [ "$(id -u)" != 0 ]; then
        has_command sudo || fail "missing: $*. As root run: apt-get install $*"
        as_root=(sudo)
    fi
    has_command apt-get || fail "missing: $*. Install these (Debian's names) with this system's package manager"

    # Some of these packages carry services; tests start their own, on loopback and free ports.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        # shellcheck disable=SC2064 # expanded now: these are locals
        trap "${as_root[*]} rm -f $policy" EXIT
    fi

    echo "setup: installing $*"
    local -a install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -q -y install --no-install-recommends)
    # The lists may be absent or stale: fetch them only when the first try fails.
    "${install[@]}" "$@" || {
        "${as_root[@]}" apt-get -q update
        "${install[@]}" "$@"
    } || fail "could not install $*; as root run: apt-get update && apt-get install $*"
}

prepare_rust() {
    has_command rustup || fail "rustup is missing; install it, then run this again"
    # rust-toolchain.toml names toolchain, components and target.
    local libraries
    if ! libraries=$(rustc --print target-libdir --target "$MUSL_TARGET" 2>/dev/null) ||
        [ ! -d "$libraries" ] || ! cargo fmt --version >/dev/null 2>&1 ||
        ! cargo clippy --version >/dev/null 2>&1; then
        echo "setup: installing the Rust toolchain of rust-toolchain.toml"
        rustup toolchain install || rustup show
        rustup target add "$MUSL_TARGET"
        rustup component add rustfmt clippy
    fi
}

# Only Debian has the package; elsewhere everything but VMs works.
prepare_guest_kernel() {
    local code=0
    scripts/guest-kernel.sh || code=$?
    case "$code" in
        0) ;;
        3) echo "setup: no kernel for microVMs from packages; make one: ringwall vm kernel build" ;;
        *) fail "could not get the kernel that microVMs boot; see above" ;;
    esac
}

# Programs of others that must agree with the audit log, the API and the policy's decisions. Tests
# without them say so.
prepare_python_verifiers() {
    local place=target/test-python
    "$place/bin/python" -c 'import aics_tlog, cvc5, ocsf_json_schema, jsonschema, schemathesis' >/dev/null 2>&1 && return
    echo "setup: installing what checks audit log, API and policy independently"
    # aics-tlog asks for Python 3.12 and runs with 3.11, which Debian 12 has.
    python3 -m venv "$place" &&
        "$place/bin/pip" install -q --disable-pip-version-check --ignore-requires-python \
            aics-tlog==0.2.1 cvc5==1.4.2 ocsf-json-schema==1.2.0 jsonschema schemathesis==4.32.5 ||
        echo "setup: no Python packages; the audit log is checked by Rust crates alone"
}

main() {
    local wanted
    # Tests need no rivals, but Docker is run in a guest.
    case "${1:-test}" in
        demo) wanted="$FOR_BUILD $FOR_DEMO" ;;
        test) wanted="$FOR_BUILD $FOR_TOOLS $FOR_DEMO $FOR_VM $FOR_TEST $FOR_FUZZ" ;;
        fuzz) wanted="$FOR_BUILD $FOR_FUZZ" ;;
        bench) wanted="$FOR_BUILD $FOR_TOOLS $FOR_DEMO $FOR_VM $FOR_BENCH" ;;
        lab) wanted="$FOR_BUILD $FOR_LAB" ;;
        all) wanted="$FOR_BUILD $FOR_TOOLS $FOR_DEMO $FOR_VM $FOR_TEST $FOR_LAB $FOR_FUZZ $FOR_BENCH" ;;
        *) fail "unknown purpose $1; say demo, test, bench, fuzz, lab or all" ;;
    esac
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "Ringwall builds on Linux on x86_64 only, so far"

    local -a packages
    # shellcheck disable=SC2086 # the lists are words
    mapfile -t packages < <(missing_packages $wanted)
    if [ "${#packages[@]}" != 0 ]; then
        install_packages "${packages[@]}"
        # shellcheck disable=SC2086
        mapfile -t packages < <(missing_packages $wanted)
        [ "${#packages[@]}" = 0 ] || fail "still missing after the installation: ${packages[*]}"
    fi
    prepare_rust
    case "${1:-test}" in test | all) prepare_python_verifiers ;; esac
    # Neither the demo nor fuzzing has a microVM, and the lab has kernels of its own.
    case "${1:-test}" in demo | fuzz) ;; lab) scripts/lab-setup.sh ;; *) prepare_guest_kernel ;; esac
}

main "$@"
