"""The modules of the standard library that scripts may import.

Importing them here, when the component is built, puts them into the snapshot: nothing is loaded
at a call, and what is not here cannot be loaded, because the component carries no library files.
"""

import importlib
import sys

GRANTED = frozenset(
    """
    __future__ abc annotationlib array ast base64 binascii bisect bz2 calendar cmath codecs
    collections collections.abc colorsys configparser contextlib contextvars copy csv dataclasses
    datetime decimal difflib dis doctest email email.message email.parser email.policy email.utils
    enum errno fnmatch fractions functools getopt graphlib gzip hashlib heapq hmac html
    html.entities html.parser http.cookies inspect io ipaddress itertools json json.decoder
    json.encoder keyword linecache locale logging math mimetypes numbers opcode operator optparse
    argparse pickle pickletools plistlib pprint queue quopri random re reprlib sched secrets shlex
    statistics string string.templatelib stringprep struct symtable tabnanny tarfile textwrap time
    timeit token tokenize tomllib trace traceback types typing unicodedata unittest unittest.mock
    urllib urllib.parse uuid warnings weakref xml xml.dom xml.dom.minidom xml.etree
    xml.etree.ElementTree xml.sax.saxutils zipfile zlib zoneinfo
    """.split()
)

# Some need what this build of Python lacks; those are simply not granted.
missing = set()
for _name in sorted(GRANTED):
    try:
        importlib.import_module(_name)
    except ImportError as error:
        missing.add(_name)
        print(f"granted: without {_name}: {error}", file=sys.stderr)
GRANTED -= missing
