#!/usr/bin/env python3
"""Puts a manifest into a WebAssembly file, as its custom section `ringwall:tool`.

    add-manifest.py IN.wasm tool.json OUT.wasm
"""

import json
import pathlib
import sys

NAME = b"ringwall:tool"


def leb128(number: int) -> bytes:
    encoded = bytearray()
    while True:
        low, number = number & 0x7F, number >> 7
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


def main() -> None:
    wasm, manifest, out = map(pathlib.Path, sys.argv[1:])
    code, text = wasm.read_bytes(), manifest.read_bytes()
    if code[:4] != b"\0asm":
        sys.exit(f"{wasm}: not a WebAssembly file")
    json.loads(text)
    content = leb128(len(NAME)) + NAME + text
    # A custom section may stand anywhere, so at the end.
    out.write_bytes(code + b"\0" + leb128(len(content)) + content)


if __name__ == "__main__":
    main()
