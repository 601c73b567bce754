"""Puts a manifest into a .wasm file: a custom section `ringwall:tool` at its end."""

import json
import sys


def leb128(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def main(manifest_path: str, wasm_path: str) -> None:
    with open(manifest_path, "rb") as manifest:
        content = json.dumps(json.load(manifest)).encode()
    name = b"ringwall:tool"
    body = leb128(len(name)) + name + content
    with open(wasm_path, "ab") as wasm:
        wasm.write(b"\0" + leb128(len(body)) + body)


if __name__ == "__main__":
    main(*sys.argv[1:])
