"""A strict call: no code is made out of text, so what a script does can be read in it.

A script runs in the interpreter that refuses it, and frames lead it to every global, closure and
module of the tool. So nothing here is looked up while the script runs: the hook has what it needs in
its own parameters, all of which cannot be changed, nobody keeps the hook, and nothing switches it off.
One process makes one strict call.

Code objects may be made, because parsing does that. They cannot be run: functions are not made out of
them, functions get no other code, and `exec` takes only what two makers of the standard library write
(`dataclass` and `namedtuple`). Their text is judged and not only their name, because both can be called
with names that are no names, and their modules can be changed.
"""

import _imp
import ast
import collections
import dataclasses
import gc
import re
import sys

MESSAGE = "code out of text (eval, exec, compile) is refused: the call is `strict`"
# What makes or runs code by another way, or reaches what the interpreter keeps to itself.
REFUSED_EVENTS = (
    "function.__new__", "code.__new__", "marshal.", "gc.", "ctypes.", "sys.addaudithook", "sys.settrace",
    "sys.setprofile", "sys._current_", "sys.monitoring.", "_thread.", "cpython.",
)  # fmt: skip

_NAME = r"[^\W\d]\w*"
_NAMES = rf"(?:{_NAME}(?:, ?{_NAME})*)?"
_QUOTED = rf"(?:'{_NAME}'(?:, ?'{_NAME}')*,?)?"
_DEFAULT = r"(?:_dflt_\w+|__dataclass_dflt_\w+__)"
_VALUE = rf"(?:{_NAME}|{_DEFAULT}\(\)(?: if {_NAME} is {_NAME} else {_NAME})?)"
_PARAMETER = rf"(?:\*|{_NAME}(?::{_NAME})?(?:={_NAME})?)"
_OWN, _OTHER = (rf"\((?:{who}\.{_NAME},)*\)" for who in ("self", "other"))
_SHOWN = rf"(?:{_NAME}=\{{self\.{_NAME}!r\}}(?:, {_NAME}=\{{self\.{_NAME}!r\}})*)?"
# All that `dataclass` writes inside of a function, from Python 3.11 to 3.14.
_LINES = (
    rf" def {_NAME}\((?:{_PARAMETER}(?:,{_PARAMETER})*)?\)(?:->{_NAME})?:",
    r" @__dataclasses_recursive_repr\(\)",
    rf" return (?:{_NAME}|\((?:{_NAME},)*\))",
    r"  pass",
    rf"  {_NAME}\.{_NAME}={_VALUE}",
    rf"  __dataclass_builtins_object__\.__setattr__\({_NAME},['\"]{_NAME}['\"],{_VALUE}\)",
    rf"  {_NAME}\.__post_init__\({_NAMES}\)",
    rf"  return self\.__class__\.__qualname__ \+ f\"\({_SHOWN}\)\"",
    rf"  return f\"\{{self\.__class__\.__qualname__\}}\({_SHOWN}\)\"",
    r"  if self is other:",
    r"  if other\.__class__ is self\.__class__:",
    r"   return True",
    rf"   return {_OWN}(?:==|<|<=|>|>=){_OTHER}",
    rf"   return self\.{_NAME}==other\.{_NAME}(?: and self\.{_NAME}==other\.{_NAME})*",
    r"  return NotImplemented",
    rf"  return hash\({_OWN}\)",
    rf"  if type\(self\) is cls(?: or name in [({{]{_QUOTED}[)}}])?:",
    r"   raise FrozenInstanceError\(f\"cannot (?:assign to|delete) field \{name!r\}\"\)",
    r"  super\(cls, self\)\.__setattr__\(name, value\)",
    r"  super\(cls, self\)\.__delattr__\(name\)",
)
MADE = re.compile(
    rf"lambda _cls, {_NAMES},?: _tuple_new\(_cls, \({_NAMES},?\)\)"
    rf"|def __create_fn__\({_NAMES}\):(?:\n(?:{'|'.join(_LINES)}))*"
)


def close() -> None:
    """From here on no text becomes code in this process."""

    def hook(
        event,
        arguments,
        refused=REFUSED_EVENTS,
        error=PermissionError,
        missing=ImportError,
        message=MESSAGE,
        made=MADE.fullmatch,
        frame=sys._getframe,
        type=type,
        str=str,
        bytes=bytes,
        parser=ast.parse.__code__.co_filename,
        makers=(collections.namedtuple.__code__.co_filename, dataclasses.dataclass.__code__.co_filename),
    ):
        if event == "compile":
            name = arguments[1]
            if type(name) is not str:
                raise error(message)
            # What is not called "<string>" cannot be run, whoever compiles it.
            if name != "<string>":
                if frame(1).f_code.co_filename != parser:
                    raise error(message)
                return
            text = arguments[0]
            if type(text) is bytes:
                text = text.decode()
            if frame(1).f_code.co_filename not in makers or type(text) is not str or not made(text):
                raise error(message)
        elif event == "exec":
            if arguments[0].co_filename != "<string>" or frame(1).f_code.co_filename not in makers:
                raise error(message)
        elif event == "object.__setattr__":
            if arguments[1] == "__code__":
                raise error(message)
        elif event == "import":
            raise missing("a strict call loads no further modules")
        elif event.startswith(refused):
            raise error(message)

    # A finalizer that the collector calls within the hook would find the hook's frame alive.
    gc.disable()
    gc.enable = gc.set_threshold = _refused
    # It would make these modules anew, with all of their functions.
    _imp.create_builtin = _refused
    sys.addaudithook(hook)


def _refused(*_arguments, **_named):
    raise PermissionError(MESSAGE)
