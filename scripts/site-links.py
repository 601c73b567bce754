"""Checks that every link between the pages of a built site leads to a file, and to an anchor in it.

    site-links.py DIRECTORY

Links to other sites are only listed with --external: a check that needs the internet is not a test.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("id", "name"):
            if attributes.get(name):
                self.anchors.add(attributes[name])
        for name in ("href", "src"):
            if attributes.get(name) and tag in ("a", "img", "object"):
                self.links.append(attributes[name])


def problem(site, pages, page, link):
    """Why a link leads nowhere, or None."""
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return "no such file"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in pages[target].anchors:
        return "no such heading"
    return None


def main(arguments):
    site = Path(arguments[0]).resolve()
    # print.html repeats all pages below other paths.
    found = [path for path in site.rglob("*.html") if path.name not in ("print.html", "toc.html", "404.html")]
    pages = {path: Page(path) for path in found}
    problems, checked, external = [], 0, set()
    for path, page in sorted(pages.items()):
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                external.add(link)
                continue
            checked += 1
            why = problem(site, pages, path, link)
            if why:
                problems.append(f"{path.relative_to(site)}: {link}: {why}")
    if "--external" in arguments:
        print("\n".join(sorted(external)))
    for line in problems:
        print(f"site: {line}", file=sys.stderr)
    if not pages or not checked:
        sys.exit("site: no page or no link was found")
    if problems:
        sys.exit(f"site: {len(problems)} of {checked} links lead nowhere")
    print(f"site: {len(pages)} pages, {checked} links checked")


if __name__ == "__main__":
    main(sys.argv[1:])
