"""The examples of the manifest are true, and what is wrong is refused."""

import json
import pathlib
import unittest

from tool import Refused, greet

MANIFEST = json.loads(pathlib.Path(__file__).with_name("tool.json").read_text())


class ToolTest(unittest.TestCase):
    def test_the_examples_of_the_manifest_are_true(self):
        for example in MANIFEST["examples"]:
            self.assertEqual(greet(example["input"]), example["output"], example["title"])

    def test_a_blank_name_is_refused(self):
        with self.assertRaises(Refused) as refused:
            greet({"name": " "})
        self.assertEqual(refused.exception.code, "bad-input")


if __name__ == "__main__":
    unittest.main()
