# Functions that take modules out of an unpacked kernel package, for scripts that source this file.
# The script defines `fail`.
#
#   find_modules DIRECTORY              reads which modules there are
#   put_modules RESULT must|may NAME... writes them with all they need, NN-name.ko in load order;
#                                       what an earlier call wrote is left out
#
# shellcheck shell=bash

needs_command() {
    command -v "$1" >/dev/null 2>&1 || fail "$1 is missing; as root run: apt-get install $2"
}

declare -A module_file=() # name, with _ for -: its file
declare -A module_done=()
module_list=()            # names in load order

find_modules() {
    local file name
    module_builtin=$1/modules.builtin module_file=() module_done=()
    while IFS= read -r file; do
        name=${file##*/} name=${name%%.ko*}
        module_file[${name//-/_}]=$file
    done < <(find "$1" -name '*.ko' -o -name '*.ko.xz' -o -name '*.ko.zst' -o -name '*.ko.gz')
}

show_module() {
    case "$1" in
        *.xz) needs_command xz xz-utils && xz -dc "$1" ;;
        *.zst) needs_command zstd zstd && zstd -qdc "$1" ;;
        *.gz) gzip -dc "$1" ;;
        *) cat "$1" ;;
    esac
}

# Cuts the signature off a module: 40 bytes and as many as they say before those. Checking it costs an
# emulated processor as much as half of the rest of its start, and proves nothing to a guest that
# got kernel and module from the same hands.
cut_signature() {
    local file=$1 size
    [ "$(tail -c 28 "$file" | tr '\0' ' ')" = "~Module signature appended~" ] || return 0
    size=$(stat -c %s "$file")
    truncate -s $((size - 40 - $(od -An -v --endian=big -t u4 -j $((size - 32)) -N 4 "$file"))) "$file"
}

# Adds a module behind those it needs. The package has no modules.dep (that is made where a kernel
# is installed), but every module says itself what it needs.
add_module() {
    local name=$1 needed
    [ -z "${module_done[$name]:-}" ] || return 0
    module_done[$name]=yes
    for needed in $(show_module "${module_file[$name]}" | tr '\0' '\n' | sed -n 's/^depends=//p' | tr ',-' ' _'); do
        add_module "$needed"
    done
    module_list+=("$name")
}

# A module that is built in needs no file.
put_modules() {
    local directory=$1 must=$2 name file index=0
    shift 2
    module_list=()
    for name in "$@"; do
        if [ -n "${module_file[$name]:-}" ]; then
            add_module "$name"
        elif [ "$must" = must ] && ! tr - _ <"$module_builtin" | grep -q "/$name\.ko$"; then
            fail "the package has no module $name"
        fi
    done
    mkdir -p "$directory"
    for name in "${module_list[@]}"; do
        file=$directory/$(printf %02d "$index")-$name.ko
        show_module "${module_file[$name]}" >"$file"
        cut_signature "$file"
        index=$((index + 1))
    done
}
