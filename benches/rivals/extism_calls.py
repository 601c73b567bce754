"""Times calls of an extism plugin: a fresh Plugin of compiled code, one call, and its end.

Usage: extism_calls.py MODULE. For each line of standard input it makes one call and writes the
nanoseconds that it took; what goes wrong is written as `error: ...`.
"""

import sys
import time


def main():
    from extism import Plugin
    from extism.extism import CompiledPlugin

    with open(sys.argv[1], "rb") as module:
        compiled = CompiledPlugin({"wasm": [{"data": module.read()}]})
    for _ in sys.stdin:
        begun = time.perf_counter_ns()
        plugin = Plugin(compiled)
        plugin.call("run", b"")
        del plugin
        print(time.perf_counter_ns() - begun, flush=True)


try:
    main()
except Exception as error:
    print(f"error: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    sys.exit(1)
