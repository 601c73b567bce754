"""Runs Python source with the standard library that computes, and none that reaches out.

This is the language's own layer: scripts get clear errors instead of dead ends. What holds even
against a script that tricks Python is below it: the component has no files, no network, no
processes, its own memory, and lives for one call.
"""

import ast
import builtins
import io
import json
import linecache
import os
import random
import sys
import traceback
import types

import strict
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
MAKING_CODE = ("eval", "exec", "compile")


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


def _audit(event: str, arguments: tuple) -> None:
    if _running and event.startswith(REFUSED_EVENTS):
        raise PermissionError(f"{event} is refused: eval-python has no files, network or processes")


def _no_code(*_arguments, **_named):
    raise PermissionError(strict.MESSAGE)


def close() -> None:
    """Called when the component is built: from here on the interpreter is as scripts find it."""
    sys.addaudithook(_audit)
    sys.setrecursionlimit(MOST_DEPTH)


def _open(*_arguments, **_named):
    raise PermissionError("open is refused: eval-python has no files; give data as `input`")


class Module:
    """Source that the call gives: it is compiled at once, and runs when it is first imported."""

    def __init__(self, name: str, source: str, names: dict) -> None:
        self.made = None
        self.error = None
        module = types.ModuleType(name)
        module.__dict__["__builtins__"] = names
        try:
            run = types.FunctionType(compile(source, f"{name}.py", "exec"), module.__dict__)
        except (SyntaxError, ValueError) as error:
            self.error = error
        else:
            self.module, self.run = module, run

    def get(self) -> types.ModuleType:
        if self.error is not None:
            raise self.error
        if self.made is None:
            self.made = self.module
            self.run()
        return self.made


def _importer(modules: dict[str, Module]):
    """`import` for a script: granted modules of the standard library, and those of the call."""
    real = builtins.__import__

    def importer(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and name in modules:
            return modules[name].get()
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


def _names(sources: dict[str, str], is_strict: bool) -> dict:
    names = {name: value for name, value in vars(builtins).items() if name not in ABSENT}
    names["open"] = _open
    if is_strict:
        names.update(dict.fromkeys(MAKING_CODE, _no_code))
    names["__import__"] = _importer({name: Module(name, source, names) for name, source in sources.items()})
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


def _prepare(script: str, names: dict) -> tuple[types.FunctionType, types.FunctionType]:
    """The script and its last line as functions, so that nothing is compiled while it runs."""
    tree = ast.parse(script, SCRIPT)
    last = ast.Expression(ast.Constant(None))
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    end = compile(ast.fix_missing_locations(last), SCRIPT, "eval")
    return types.FunctionType(compile(tree, SCRIPT, "exec"), names), types.FunctionType(end, names)


def call(text: str) -> str:
    global _running
    given = json.loads(text)
    is_strict = given.get("strict", False)
    script = given["script"]
    # The generator's state is part of the snapshot: without this every call would draw alike.
    random.seed(os.urandom(16))
    linecache.cache[SCRIPT] = (len(script), None, script.splitlines(True), SCRIPT)
    for name, source in given.get("modules", {}).items():
        linecache.cache[f"{name}.py"] = (len(source), None, source.splitlines(True), f"{name}.py")
    names = {
        "__name__": "__main__",
        "__builtins__": _names(given.get("modules", {}), is_strict),
        "input": given.get("input"),
    }
    output = Output()
    try:
        run, end = _prepare(script, names)
        if is_strict:
            strict.close()
        sys.stdout = sys.stderr = output
        sys.stdin = io.StringIO()
        _running = True
        run()
        value = end()
        # The result is the variable `result`, else the value of the last line.
        value = names.get("result", value)
        result = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except BaseException as error:
        _running = False
        raise _failed(error, output) from None
    finally:
        _running = False
    return '{"result": %s, "stdout": %s, "truncated": %s}' % (
        result,
        json.dumps(output.getvalue(), ensure_ascii=False),
        "true" if output.truncated else "false",
    )
