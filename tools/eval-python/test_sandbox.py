"""What scripts can do, and what they cannot: the language's own layer, in the host's Python.

    python3 -m unittest discover tools/eval-python
"""

import json
import pathlib
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

    def test_a_strict_call_makes_no_code_out_of_text(self):
        for script in (
            "eval('1 + 1')",
            "exec('a = 1')",
            "compile('1', 'x', 'eval')",
            "import ast\nast.__builtins__['eval']('1 + 1')",
            "import ast\nast.__builtins__['compile'](ast.parse('1'), 'x', 'exec')",
            "import json\njson.__builtins__['exec']('a = 1')",
            "def f(): pass\nimport dataclasses\ndataclasses.__builtins__['exec'](f.__code__, vars(dataclasses))",
            "import timeit\ntimeit.timeit('1', number=1)",
            "import typing\nclass A: x: 'print(1)'\ntyping.get_type_hints(A)",
            "(lambda: 0).__globals__['__builtins__']['eval']('1')",
            "import types\ntypes.FunctionType((lambda: 1).__code__, {})()",
        ):
            with self.subTest(script):
                self.assertIn("refused", self.failure(script, strict=True).message)

    def test_a_strict_call_has_the_rest_of_the_language(self):
        script = """
from collections import namedtuple
from dataclasses import dataclass
import ast, mine
@dataclass
class Point:
    x: int
P = namedtuple("P", "a b")
[Point(3).x, P(1, 2).b, ast.literal_eval("[4]"), mine.five()]
"""
        modules = {"mine": "def five(): return 5"}
        self.assertEqual(result(script, modules=modules, strict=True), [3, 2, [4], 5])
        self.assertEqual(result("eval('1 + 1')"), 2)


def setUpModule():
    sandbox.close()


if __name__ == "__main__":
    unittest.main()
