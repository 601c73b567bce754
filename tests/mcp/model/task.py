"""A real small model does a file task through walls.

Usage: task.py RINGWALL MODEL-URL. The model (SmolLM2, 135 million parameters) is asked over the OpenAI-compatible API what
to do next. It is too small to write a tool call by itself, so a grammar holds its answers to the calls that it has not
made yet; which of them, and what it writes, is its own choice. Each call is made by `ringwall mcp`, in a sandbox."""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SYSTEM = ("You work with files. Each answer is one tool call as JSON. read_file reads the file at path. "
          "write_file writes text to the file at path.")
TASK = "Read the file question.txt and write the answer to the file answer.txt."
QUESTION, ANSWER = "What is the capital of France?", "Paris"
CALLS = [
    {"tool": {"const": "read_file"}, "path": {"const": "question.txt"}},
    {"tool": {"const": "write_file"}, "path": {"const": "answer.txt"}, "text": {"type": "string"}},
]


def next_call(url, messages, calls):
    schema = {"oneOf": [{"type": "object", "properties": call} for call in calls]}
    body = {"model": "smollm2", "messages": messages, "max_tokens": 100,
            "response_format": {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    return json.loads(text)


async def act(session, sandbox, project, call):
    """Does what the model wants, in the sandbox; tells it what came of it."""
    place = {"sandbox": sandbox, "path": os.path.join(project, call["path"])}
    if call["tool"] == "read_file":
        result = await session.call_tool("sandbox_fs_read", place)
        told = (result.structuredContent or {}).get("text", "").strip()
    else:
        result = await session.call_tool("sandbox_fs_write", {**place, "text": call["text"] + "\n"})
        told = "written"
    return "error: " + result.content[0].text if result.isError else told


async def main(ringwall, url):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top:
        project = os.path.realpath(os.path.join(top, "project"))
        os.mkdir(project)
        with open(os.path.join(project, "question.txt"), "w") as file:
            file.write(QUESTION + "\n")
        os.mkdir(os.path.join(top, "home"))
        environment = {"PATH": os.environ["PATH"], "HOME": top, "RINGWALL_HOME": os.path.join(top, "home")}
        server = StdioServerParameters(command=ringwall, args=["mcp", "--workspace", project],
                                       env=environment, cwd=project)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            made = (await session.call_tool("sandbox_create", {})).structuredContent
            sandbox, wall = made["sandbox"], made["wall"]
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
            left = list(CALLS)
            while left:
                call = next_call(url, messages, left)
                told = await act(session, sandbox, project, call)
                print(f"{json.dumps(call)} -> {told!r}, behind {wall}", flush=True)
                messages += [{"role": "assistant", "content": json.dumps(call, separators=(",", ":"))},
                             {"role": "user", "content": told}]
                left = [other for other in left if other["tool"]["const"] != call["tool"]]
            untouched = not os.path.exists(os.path.join(project, "answer.txt"))
            await session.call_tool("sandbox_stop", {"sandbox": sandbox})
            await session.call_tool("sandbox_fs_apply", {"sandbox": sandbox})
        try:
            with open(os.path.join(project, "answer.txt")) as file:
                answer = file.read().strip()
        except FileNotFoundError:
            answer = None
        print(f"answer.txt: {answer!r}; the host was untouched until the changes were applied: {untouched}")
        return answer is not None and ANSWER in answer and untouched


sys.exit(0 if asyncio.run(main(*sys.argv[1:])) else 1)
