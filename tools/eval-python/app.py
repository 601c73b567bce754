"""The component: what componentize-py snapshots. The work is in `sandbox`."""

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Failure

import sandbox

sandbox.close()


class Tool(exports.Tool):
    def call(self, input: str) -> str:
        try:
            return sandbox.call(input)
        except sandbox.Refused as refused:
            raise Err(Failure(refused.code, refused.message)) from None
