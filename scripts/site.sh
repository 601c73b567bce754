#!/usr/bin/env bash
# Builds the documents as a site with search, and checks that every link in it leads somewhere.
#
#   scripts/site.sh OUT_DIR
#
# The site has the files of the repository at their paths, so links work as they do in the repository.
# The table of contents is made from docs/README.md. mdBook is installed once into
# ${RINGWALL_CACHE:-~/.cache/ringwall}, where it is not on PATH in this version.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MDBOOK_VERSION=0.5.4

fail() {
    printf 'site: %s\n' "$*" >&2
    exit 1
}

[ $# = 1 ] || fail "usage: scripts/site.sh OUT_DIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)

find_mdbook() {
    local program
    program=$(command -v mdbook || true)
    if [ -n "$program" ] && [ "$("$program" --version)" = "mdbook v$MDBOOK_VERSION" ]; then
        echo "$program"
        return
    fi
    local place=${RINGWALL_CACHE:-${HOME:-$out}/.cache/ringwall}/mdbook-$MDBOOK_VERSION
    if [ ! -x "$place/bin/mdbook" ]; then
        echo "site: building mdBook $MDBOOK_VERSION, once" >&2
        # Its own target directory: the repository's has another default target.
        CARGO_TARGET_DIR=$out/mdbook-target CARGO_BUILD_TARGET=$(rustc -vV | sed -n 's/^host: //p') \
            cargo install --quiet --locked --debug --no-default-features --features search \
            --version "$MDBOOK_VERSION" --root "$place" mdbook >&2
        rm -rf "$out/mdbook-target"
    fi
    echo "$place/bin/mdbook"
}

# The headings and links of docs/README.md, as mdBook wants them.
contents() {
    echo "# Summary"
    echo
    echo "[Ringwall](README.md)"
    echo "[All pages](docs/README.md)"
    # Links may be broken over two lines.
    tr '\n' ' ' <docs/README.md | sed 's/## /\n## /g' | awk '
        /^## / {
            heading = $2
            print "\n# " heading "\n"
            rest = $0
            while (match(rest, /\[[^]]*\]\([^)]*\)/)) {
                link = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                path = link; sub(/^.*\]\(/, "", path); sub(/\)$/, "", path)
                words = link; sub(/\]\(.*$/, "", words); sub(/^\[/, "", words)
                words = toupper(substr(words, 1, 1)) substr(words, 2)
                if (path !~ /^\.\.\//) path = "docs/" path
                sub(/^\.\.\//, "", path)
                print "- [" words "](" path ")"
            }
        }'
    echo
    echo "# Built-in tools"
    echo
    local page
    for page in docs/reference/tools/*.md; do
        echo "- [$(basename "$page" .md)]($page)"
    done
    echo
    echo "# Project"
    echo
    for page in CHANGELOG.md docs/benchmarks/README.md; do
        echo "- [$(sed -n '1s/^# //p' "$page")]($page)"
    done
}

mdbook=$(find_mdbook)
rm -rf "$out/src" "$out/book"
mkdir -p "$out/src"
cp -- *.md LICENSE "$out/src"
cp -r docs "$out/src"
# Other files of the repository to which documents link, at the same paths.
{ grep -rhoE '\]\((\.\./)+[^)#]*' docs --include='*.md' || true; } | sed -E 's/^\]\((\.\.\/)+//' | sort -u |
    while read -r file; do
        if [ -f "$file" ] && [ ! -e "$out/src/$file" ]; then
            install -D -m 644 "$file" "$out/src/$file"
        fi
    done
contents >"$out/src/SUMMARY.md"
cp resources/site/book.toml "$out/book.toml"
"$mdbook" build "$out"
python3 scripts/site-links.py "$out/book"
echo "site: $out/book/index.html"
