"""Runs Python source with the standard library that computes, and none that reaches out.

This is the language's own layer: scripts get clear errors instead of dead ends. What holds even
against a script that tricks Python is below it: the component has no files, no network, no
processes, its own memory, and lives for one call.
"""

import ast
import builtins
import collections
import dataclasses
import io
import json
import linecache
import os
import random
import sys
import traceback
import types

from granted import GRANTED

SCRIPT = "script.py"
MOST_STDOUT = 256 * 1024
MOST_MESSAGE = 8_000
MOST_DEPTH = 1000
ABSENT = ("open", "input", "breakpoint", "help", "exit", "quit", "license", "credits", "copyright")
# Audit events of things that a script has no business with, by their beginnings.
REFUSED_EVENTS = (
    "open", "os.", "shutil.", "glob.", "pathlib.", "tempfile.", "socket.", "subprocess.", "ctypes.",
    "urllib.", "http.", "ftplib.", "smtplib.", "imaplib.", "poplib.", "webbrowser.", "signal.",
    "fcntl.", "mmap.", "gc.", "code.__new__", "function.__new__", "sys.addaudithook", "sys.settrace",
    "sys.setprofile", "sys._current_", "sys.unraisablehook", "cpython.run_",
)  # fmt: skip
# In strict mode no code is made out of text: what a script does can be read in it.
MAKING_CODE = ("eval", "exec", "compile")
CODE_EVENTS = ("compile", "exec", "marshal.loads")
# They make functions out of names that they have checked, or only parse.
MAKERS = (ast, collections, dataclasses)


class Refused(Exception):
    """A failure of the tool: a code for programs, a message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:MOST_MESSAGE]


class Output(io.StringIO):
    """What a script prints, up to a limit."""

    truncated = False

    def write(self, text: str) -> int:
        room = MOST_STDOUT - self.tell()
        if len(text) > room:
            self.truncated = True
        super().write(text[: max(room, 0)])
        return len(text)


_running = False
_strict = False
# What the call itself is made of, while it is strict.
_own_code: list[types.CodeType] = []


def _audit(event: str, arguments: tuple) -> None:
    if _running and event.startswith(REFUSED_EVENTS):
        raise PermissionError(f"{event} is refused: eval-python has no files, network or processes")
    if _running and _strict and event in CODE_EVENTS:
        _check_maker(arguments, sys._getframe(1))


def _check_maker(arguments: tuple, maker: types.FrameType) -> None:
    if any(arguments[0] is code for code in _own_code):
        return
    if not any(maker.f_globals is vars(module) for module in MAKERS):
        _no_code()


def _no_code(*_arguments, **_named):
    raise PermissionError("code out of text (eval, exec, compile) is refused: the call is `strict`")


def _compiled(source, name: str, mode: str) -> types.CodeType:
    """Code of the call's own script or modules, which it may run."""
    global _running
    before, _running = _running, False
    try:
        code = compile(source, name, mode)
    finally:
        _running = before
    _own_code.append(code)
    return code


def close() -> None:
    """Called when the component is built: from here on the interpreter is as scripts find it."""
    sys.addaudithook(_audit)
    sys.setrecursionlimit(MOST_DEPTH)


def _open(*_arguments, **_named):
    raise PermissionError("open is refused: eval-python has no files; give data as `input`")


def _importer(modules: dict[str, str], names: dict):
    """`import` for a script: granted modules of the standard library, and those of the call."""
    made: dict[str, types.ModuleType] = {}
    real = builtins.__import__

    def importer(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and name in modules:
            if name not in made:
                module = made[name] = types.ModuleType(name)
                module.__dict__["__builtins__"] = names
                exec(_compiled(modules[name], f"{name}.py", "exec"), module.__dict__)
            return made[name]
        # A module of the standard library imports for itself, by the real function.
        if level == 0 and name in GRANTED:
            return real(name, globals, locals, fromlist, level)
        message = f"import of {name!r} is not granted"
        if name.partition(".")[0] in sys.stdlib_module_names:
            hint = "see the tool's page for what is"
        else:
            hint = "give its source in `modules`"
        raise ImportError(f"{message}; {hint}", name=name)

    return importer


def _names(modules: dict[str, str]) -> dict:
    names = {name: value for name, value in vars(builtins).items() if name not in ABSENT}
    names["open"] = _open
    if _strict:
        names.update(dict.fromkeys(MAKING_CODE, _no_code))
    names["__import__"] = _importer(modules, names)
    return names


def _plain(value):
    """JSON for what has an obvious one."""
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ in ("Decimal", "Fraction", "UUID"):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"the result holds a {type(value).__name__}, which has no JSON; return plain data")


def _failed(error: BaseException, output: Output) -> Refused:
    """The traceback of the script's own frames, and the end of what it printed."""
    frames = traceback.TracebackException.from_exception(error)
    cause = frames
    while cause is not None:
        # The library's and our own files are not there to be read, and not what went wrong.
        cause.stack[:] = [frame for frame in cause.stack if "/" not in frame.filename]
        cause = cause.__cause__ or cause.__context__
    text = "".join(frames.format()).rstrip()
    if printed := output.getvalue():
        text += "\nprinted before:\n" + printed[-1_000:]
    return Refused("limit" if isinstance(error, MemoryError) else "script-error", text)


def _execute(script: str, names: dict):
    """Runs the script; its result is the variable `result`, else the value of its last line."""
    tree = ast.parse(script, SCRIPT)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    body = _compiled(tree, SCRIPT, "exec")
    end = _compiled(last, SCRIPT, "eval") if last is not None else None
    exec(body, names)
    value = eval(end, names) if end is not None else None
    return names.get("result", value)


def call(text: str) -> str:
    global _running, _strict
    given = json.loads(text)
    _strict = given.get("strict", False)
    _own_code.clear()
    script = given["script"]
    # The generator's state is part of the snapshot: without this every call would draw alike.
    random.seed(os.urandom(16))
    linecache.cache[SCRIPT] = (len(script), None, script.splitlines(True), SCRIPT)
    for name, source in given.get("modules", {}).items():
        linecache.cache[f"{name}.py"] = (len(source), None, source.splitlines(True), f"{name}.py")
    names = {
        "__name__": "__main__",
        "__builtins__": _names(given.get("modules", {})),
        "input": given.get("input"),
    }
    output = Output()
    sys.stdout = sys.stderr = output
    sys.stdin = io.StringIO()
    _running = True
    try:
        value = _execute(script, names)
        result = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except BaseException as error:
        _running = False
        raise _failed(error, output) from None
    finally:
        _running = _strict = False
    return '{"result": %s, "stdout": %s, "truncated": %s}' % (
        result,
        json.dumps(output.getvalue(), ensure_ascii=False),
        "true" if output.truncated else "false",
    )
