"""What scripts can do, and what they cannot: the language's own layer, in the host's Python.

    python3 -m unittest discover tools/eval-python
"""

import json
import pathlib
import subprocess
import sys
import unittest

import sandbox

HERE = pathlib.Path(__file__).parent


def call(script, **more):
    return json.loads(sandbox.call(json.dumps({"script": script, **more})))


def result(script, **more):
    return call(script, **more)["result"]


class Scripts(unittest.TestCase):
    def failure(self, script, **more):
        with self.assertRaises(sandbox.Refused) as caught:
            call(script, **more)
        return caught.exception

    def test_the_examples_give_what_the_manifest_says(self):
        for example in json.loads((HERE / "tool.json").read_text())["examples"]:
            with self.subTest(example["title"]):
                self.assertEqual(json.loads(sandbox.call(json.dumps(example["input"]))), example["output"])

    def test_the_result_is_the_variable_or_the_last_line(self):
        self.assertEqual(result("1\n2 + 3"), 5)
        self.assertEqual(result("result = [1]\n7"), [1])
        self.assertIsNone(result("a = 1"))
        self.assertEqual(result("input['a'] * 2", input={"a": 21}), 42)

    def test_plain_data_of_common_types_becomes_json(self):
        script = "import datetime, decimal, dataclasses\n@dataclasses.dataclass\nclass A:\n    b: int\n"
        script += "[datetime.date(2024, 1, 2), decimal.Decimal('1.50'), A(1), (1, 2), {3, 1}, range(2)]"
        self.assertEqual(result(script), ["2024-01-02", "1.50", {"b": 1}, [1, 2], [1, 3], [0, 1]])
        self.assertIn("object", self.failure("object()").message)
        self.assertIn("JSON", self.failure("float('nan')").message)

    def test_what_is_not_granted_cannot_be_imported(self):
        for name in ["os", "sys", "socket", "subprocess", "ctypes", "importlib", "pathlib", "threading", "absent"]:
            with self.subTest(name):
                self.assertIn("not granted", self.failure(f"import {name}").message)
        self.assertIn("not granted", self.failure("exec('import os', {})").message)
        self.assertIn("not granted", self.failure("__import__('os')").message)

    def test_files_are_refused_even_where_a_module_leaks_the_means(self):
        for script in ["open('/etc/passwd')", "import io\nio.open('/etc/passwd')", "import random\nrandom._os.listdir('/')",
                       "import random\nrandom._os.system('true')", "import io\nio.FileIO('/etc/passwd')"]:
            with self.subTest(script):
                self.assertIn("refused", self.failure(script).message)

    def test_a_module_of_the_call_is_made_once_and_has_the_same_rules(self):
        modules = {"a": "import b\nvalue = b.value + 1", "b": "value = 1\nprint('made')"}
        self.assertEqual(call("import a, b\na.value", modules=modules)["stdout"], "made\n")
        self.assertIn("not granted", self.failure("import a", modules={"a": "import os"}).message)

    def test_errors_show_the_scripts_own_lines(self):
        message = self.failure("x = 1\ndef f():\n    return x / 0\nf()\n").message
        self.assertIn('File "script.py", line 3, in f', message)
        self.assertIn("return x / 0", message)
        self.assertNotIn("sandbox", message)
        self.assertIn("line 1", self.failure("x =").message)

    def test_a_failure_repeats_what_was_printed_before(self):
        self.assertIn("nearly", self.failure("print('nearly')\n1 / 0").message)

    def test_endless_recursion_and_exit_are_failures_like_any(self):
        self.assertIn("RecursionError", self.failure("def f(): return f()\nf()").message)
        self.assertIn("SystemExit", self.failure("raise SystemExit(3)").message)

    def test_what_is_printed_is_bounded(self):
        output = call("for _ in range(100): print('a' * 10_000)")
        self.assertEqual(len(output["stdout"]), sandbox.MOST_STDOUT)
        self.assertTrue(output["truncated"])

    def test_random_numbers_differ_between_calls(self):
        script = "import random\nrandom.random()"
        self.assertNotEqual(result(script), result(script))

    def test_a_module_with_a_mistake_fails_where_it_is_imported(self):
        self.assertEqual(result("1", modules={"a": "x ="}), 1)
        self.assertIn("a.py", self.failure("import a", modules={"a": "x ="}).message)


# The builtins of the standard library are unguarded, and every script has them at hand.
REAL = "import ast\nreal = ast.__builtins__\n"
BAD_NAME = "a[print('code out of text', 6*7)]"
LYING = "class S(str):\n    def isidentifier(self): return True\n"


class StrictCalls(unittest.TestCase):
    """Nothing switches a strict call off, so each has a process of its own."""

    def call(self, script, **more):
        run = "import json, sys, sandbox\nout, given = sys.stdout, sys.stdin.read()\nsandbox.close()\n"
        run += "try: print(sandbox.call(given), file=out)\n"
        run += "except sandbox.Refused as refused: print(json.dumps({'refused': refused.message}), file=out)"
        given = json.dumps({"script": script, "strict": True} | more)
        done = subprocess.run(
            [sys.executable, "-c", run], cwd=HERE, input=given, capture_output=True, text=True, timeout=60
        )
        # A script can break what writes its own failure, which is a failure of the call as well.
        return json.loads(done.stdout or '{"refused": "the call crashed"}')

    def assert_refused(self, *scripts, because="is refused|loads no further|the call crashed"):
        for script in scripts:
            with self.subTest(script):
                answer = self.call(script)
                self.assertIn("refused", answer, answer)
                self.assertRegex(answer["refused"], because)
                self.assertNotIn("printed before", answer["refused"])

    def test_no_code_is_made_out_of_text(self):
        self.assert_refused(
            "eval('1 + 1')",
            "exec('a = 1')",
            "compile('1', 'x', 'eval')",
            REAL + "real['eval']('1 + 1')",
            REAL + "real['compile'](ast.parse('1'), 'x', 'exec')",
            REAL + "list(map(real['eval'], ['1']))",
            "import json\njson.__builtins__['exec']('a = 1')",
            "def f(): pass\nimport dataclasses\ndataclasses.__builtins__['exec'](f.__code__, vars(dataclasses))",
            "import timeit\ntimeit.timeit('1', number=1)",
            "import typing\nclass A: x: 'print(1)'\ntyping.get_type_hints(A)",
            "(lambda: 0).__globals__['__builtins__']['eval']('1')",
            "import types\ntypes.FunctionType((lambda: 1).__code__, {})()",
            "import pickle\npickle.loads(b'cbuiltins\\neval\\n(V1+1\\ntR.')",
            "import optparse\noptparse.gettext.__globals__['c2py']('n != 1')",
            "import inspect\ndef f(): pass\nf = int.__add__\nclass A: __text_signature__ = '(a=x.y)'\n"
            "inspect._signature_fromstr(inspect.Signature, A, '(a=x.y)')\n1 / 0",
            because="is refused|not granted|has invalid signature",
        )

    def test_makers_of_the_standard_library_take_no_text_for_a_name(self):
        fields = f"class A: a = 1\nA.__annotations__ = {{{BAD_NAME!r}: int}}\na = {{None: 1}}\nimport dataclasses\n"
        self.assert_refused(
            fields + "dataclasses.dataclass(init=False, eq=False)(A)\nrepr(A())",
            fields + "dataclasses.dataclass(A)",
            fields + "dataclasses.dataclass(order=True, frozen=True, repr=False, init=False)(A)",
            # A string whose methods say what is asked of them.
            f"import dataclasses\n{LYING}dataclasses.make_dataclass('A', [(S({BAD_NAME!r}), int)])",
            # The module's own names, changed under it.
            f"import collections\n{LYING}class Sys: intern = staticmethod(lambda text: text)\ncollections._sys = Sys\n"
            "collections.type = lambda value: str\ncollections.map = lambda _f, names: names\n"
            f"collections.list = lambda names: [S({BAD_NAME!r})]\ncollections.namedtuple('A', 'a')",
            "import dataclasses as d\nif hasattr(d, '_create_fn'): d._create_fn('f', (), ['print(1)'])\n"
            "else:\n    b = d._FuncBuilder({})\n    b.add_fn('f', (), ['  print(1)'])\n    b.add_fns_to_class(int)",
        )
        self.assert_refused(
            f"import dataclasses\ndataclasses.make_dataclass('A', [{BAD_NAME!r}])",
            f"import collections\ncollections.namedtuple('A', [{BAD_NAME!r}])",
            f"import typing\ntyping.NamedTuple('A', [({BAD_NAME!r}, int)])",
            because="valid identifiers",
        )

    def test_nothing_that_a_script_reaches_switches_it_off(self):
        self.assert_refused(
            # The tool's own modules, by the functions and the frames that it leaves in reach.
            REAL + "g = eval.__globals__\ng['_strict'] = g['_running'] = g['is_strict'] = False\nreal['eval']('print(1)')",
            REAL + "s = eval.__globals__['strict']\ns.REFUSED_EVENTS = ()\ns.MADE = None\nreal['exec']('print(1)')",
            REAL + "try: 1 / 0\nexcept Exception as e: frame = e.__traceback__.tb_frame\n"
            "while frame:\n    for name in ('_strict', '_running', 'is_strict'):\n"
            "        if frame.f_globals is not globals(): frame.f_globals[name] = frame.f_locals[name] = False\n"
            "    frame = frame.f_back\nreal['exec']('print(1)')",
            # The frame of the hook itself, which the traceback of a refusal shows.
            REAL + "try: real['exec']('1')\nexcept PermissionError as e: last = e.__traceback__\n"
            "while last.tb_next: last = last.tb_next\n"
            "last.tb_frame.f_locals['made'] = last.tb_frame.f_globals['MADE'] = lambda text: True\n"
            "last.tb_frame.f_locals['makers'] = ('script.py',)\nreal['exec']('print(1)')",
            # What the hook would call, if it looked anything up.
            REAL + "real['type'] = lambda value: value\nreal['any'] = lambda *_: True\nreal['eval']('print(1)')",
            # A function that may parse, with other code; and what it parses made into code.
            REAL + "ast.parse.__code__ = (lambda text: eval(text)).__code__\nast.parse('print(1)')",
            REAL + "ast.PyCF_ONLY_AST = 0\ncode = ast.parse('print(1)')\nreal['exec'](code)",
            REAL + "ast.PyCF_ONLY_AST = 0\ncode = ast.parse('print(1)')\ncode.replace(co_filename='<string>')",
            REAL + "import functools\nast.compile = functools.partial(real['compile'], 'print(1)')\n"
            "code = ast.parse('<string>', 'exec', 0)\nreal['exec'](code)",
            # Another interpreter has no hook, and the collector runs finalizers in the midst of one.
            "import inspect\ninspect.importlib.import_module('_testcapi')",
            "import inspect\nb = inspect.importlib._bootstrap\nb.BuiltinImporter.create_module(b.ModuleSpec('gc', None))",
            "import random\nrandom._os.sys.modules['gc'].enable()",
            "import random\nrandom._os.sys.modules['marshal'].loads(b'N')",
        )

    def test_the_rest_of_the_language_works(self):
        script = """
from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field, make_dataclass
import ast, enum, functools, mine, re, typing
@dataclass
class Point:
    x: int
@dataclass(order=True, frozen=True)
class Whole:
    x: int
    y: str = "b"
    z: list = field(default_factory=list)
    w: int = field(init=False, default=3)
    v: list = field(init=False, default_factory=list)
    given: InitVar[int] = 2
    _: KW_ONLY = None
    q: int = 5
    def __post_init__(self, given): self.z.append(given)
@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class Tight:
    self: int = 3
class Colour(enum.Enum):
    RED = 1
@dataclass(frozen=True)
class Empty: pass
P = namedtuple("P", "a b", defaults=[2])
N = namedtuple("N", "")
T = typing.NamedTuple("T", [("a", int)])
def write(whole):
    try: whole.x = 2
    except Exception as error: return str(error)
[Point(3).x, P(1).b, ast.literal_eval("[4]"), mine.five(), repr(Whole(1)), Whole(1) < Whole(2), write(Whole(1)),
 hash(Tight()) == hash(Tight()), Colour.RED.value, make_dataclass("M", ["k"])(7).k, len(N()), T(8).a,
 Empty() == Empty(), functools.reduce(lambda a, b: a + b, [1, 2]), re.sub("a", "b", "aa")]
"""
        answer = self.call(script, modules={"mine": "def five(): return 5"})
        self.assertEqual(
            answer.get("result"),
            [3, 2, [4], 5, "Whole(x=1, y='b', z=[2], w=3, v=[], q=5)", True, "cannot assign to field 'x'",
             True, 1, 7, 0, 8, True, 3, "bb"],
            answer,
        )  # fmt: skip
        self.assertEqual(result("eval('1 + 1')"), 2)


def setUpModule():
    sandbox.close()


if __name__ == "__main__":
    unittest.main()
