"""A real small model does a file task through walls.

Usage: task.py RINGWALL MODEL-URL. The model (SmolLM2, 135 million parameters) is asked over the OpenAI-compatible
API what to do next; its answers are held to the shape of one tool call by a grammar. What it chooses is done by
`ringwall mcp`, in a sandbox, and told back to it. Nothing is decided for it but when to stop asking."""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

MOST_STEPS = 6
SYSTEM = """You do tasks with files. Each answer is one tool call in JSON.
read_file: read the file at "path". write_file: write "text" to the file at "path". done: the task is finished.

Example task: Copy the color in color.txt to sky.txt.
{"tool":"read_file","path":"color.txt","text":""}
color.txt contains: blue
{"tool":"write_file","path":"sky.txt","text":"blue"}
sky.txt was written
{"tool":"done","path":"","text":""}"""
CALL = {"type": "object", "properties": {"tool": {"enum": ["read_file", "write_file", "done"]},
                                         "path": {"type": "string"}, "text": {"type": "string"}}}


def next_call(url, messages):
    body = {"model": "smollm2", "messages": messages, "max_tokens": 100,
            "response_format": {"type": "json_schema", "json_schema": {"name": "call", "schema": CALL}}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    return text, json.loads(text)


async def act(session, sandbox, project, call):
    """Does what the model wants, in the sandbox; tells it what came of it."""
    place = {"sandbox": sandbox, "path": os.path.join(project, call["path"].lstrip("/"))}
    if call["tool"] == "read_file":
        result = await session.call_tool("sandbox_fs_read", place)
        told = (result.structuredContent or {}).get("text", "").strip()
        told = f"{call['path']} contains: {told}"
    else:
        result = await session.call_tool("sandbox_fs_write", {**place, "text": call["text"] + "\n"})
        told = f"{call['path']} was written"
    return "error: " + result.content[0].text if result.isError else told


async def main(ringwall, url):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top:
        project = os.path.realpath(os.path.join(top, "project"))
        os.mkdir(project)
        with open(os.path.join(project, "city.txt"), "w") as file:
            file.write("Lisbon\n")
        os.mkdir(os.path.join(top, "home"))
        environment = {"PATH": os.environ["PATH"], "HOME": top, "RINGWALL_HOME": os.path.join(top, "home")}
        server = StdioServerParameters(command=ringwall, args=["mcp", "--workspace", project],
                                       env=environment, cwd=project)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            made = (await session.call_tool("sandbox_create", {})).structuredContent
            sandbox, wall = made["sandbox"], made["wall"]
            task = "Task: Copy the city in city.txt to answer.txt."
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
            for step in range(1, MOST_STEPS + 1):
                text, call = next_call(url, messages)
                print(f"step {step}: {json.dumps(call)}", flush=True)
                if call["tool"] == "done":
                    break
                told = await act(session, sandbox, project, call)
                print(f"        {told} (behind {wall})", flush=True)
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": told}]
            untouched = not os.path.exists(os.path.join(project, "answer.txt"))
            await session.call_tool("sandbox_stop", {"sandbox": sandbox})
            await session.call_tool("sandbox_fs_apply", {"sandbox": sandbox})
        try:
            with open(os.path.join(project, "answer.txt")) as file:
                answer = file.read().strip()
        except FileNotFoundError:
            answer = None
        print(f"answer.txt: {answer!r}; the host was untouched until the changes were applied: {untouched}")
        return answer == "Lisbon" and untouched


sys.exit(0 if asyncio.run(main(*sys.argv[1:])) else 1)
