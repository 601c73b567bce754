"""Servers for the tests: HTTPS with events, WebSocket, files and git; plain HTTP beside it.

Usage: server.py CERTIFICATE KEY DIRECTORY. Prints both ports, then serves until standard input ends.
Every request is written to DIRECTORY/seen, one JSON line each."""

import base64
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

certificate, key, directory = sys.argv[1:4]
lock = threading.Lock()


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=directory)

    def log_message(self, *_):
        pass

    def note(self, body=None):
        line = {"method": self.command, "path": self.path, "headers": dict(self.headers)}
        if body is not None:
            line = {"body": body.decode("latin1")}
        with lock, open(os.path.join(directory, "seen"), "a") as seen:
            seen.write(json.dumps(line) + "\n")

    def say(self, status, body, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        self.note()
        path = urllib.parse.urlsplit(self.path).path
        if path == "/hello":
            self.say(200, b"hello\n")
        elif path == "/echo":
            self.say(200, json.dumps(dict(self.headers)).encode(), "application/json")
        elif path == "/away":
            self.send_response(302)
            self.send_header("Location", self.headers["X-Away"])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/stall":
            time.sleep(600)
        elif path == "/pretend":
            self.send_response(200)
            self.send_header("X-Ringwall", "refused")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/events":
            self.events(range(3))
        elif path == "/endless":
            self.events(range(10000))
        elif path == "/socket":
            self.socket()
        elif path.startswith("/git/"):
            self.git()
        else:
            super().do_GET()

    def do_POST(self):
        self.note()
        if self.path.startswith("/git/"):
            self.git()
        else:
            body = self.body()
            self.note(body[:256])
            self.say(200, b"%d\n" % len(body))

    def events(self, numbers):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in numbers:
            self.wfile.write(b"data: %d\n\n" % number)
            self.wfile.flush()
            time.sleep(0.05)
        self.close_connection = True

    def socket(self):
        """Answers each text frame with the same in capitals."""
        token = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(token.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        while head := self.rfile.read(2):
            if head[0] & 15 != 1:
                break
            mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)).upper()
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()
        self.close_connection = True

    def git(self):
        parts = urllib.parse.urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": os.path.join(directory, "git"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REMOTE_USER": "test",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path[len("/git"):],
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        data = self.body() if self.command == "POST" else b""
        environment["CONTENT_LENGTH"] = str(len(data))
        done = subprocess.run(["git", "http-backend"], env=environment, input=data, capture_output=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n") if b": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    secure = None

    def finish_request(self, request, address):
        # In the connection's own thread, so that nobody waits for another's greeting.
        if self.secure:
            request = self.secure.wrap_socket(request, server_side=True)
        self.RequestHandlerClass(request, address, self)
        if self.secure:
            try:
                request.unwrap()
            except OSError:
                pass

    def handle_error(self, *_):
        pass


secure = Server(("127.0.0.1", 0), Handler)
secure.secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
secure.secure.load_cert_chain(certificate, key)
plain = Server(("127.0.0.1", 0), Handler)
for server in (secure, plain):
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(secure.server_port, plain.server_port, flush=True)
sys.stdin.read()
