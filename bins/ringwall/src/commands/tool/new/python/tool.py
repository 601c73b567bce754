"""What the tool does: `greet` over plain values, and the class that Ringwall calls."""

import json

try:
    # Made by the build, and taken into the file; the tests do without.
    from componentize_py_types import Err
    from wit_world.imports.types import Failure
except ImportError:
    Err = Failure = None


class Refused(Exception):
    """Why there is no output. The code is for programs (kebab-case), the message for people."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def greet(value: dict) -> dict:
    name = value["name"]
    if not name.strip():
        raise Refused("bad-input", "the name is blank; say whom to greet")
    return {"greeting": f"Hello, {name}!"}


class Tool:
    """The interface `tool` of wit/tool.wit."""

    def call(self, input: str) -> str:
        try:
            return json.dumps(greet(json.loads(input)), ensure_ascii=False, separators=(",", ":"))
        except Refused as refused:
            raise Err(Failure(refused.code, refused.message)) from None
