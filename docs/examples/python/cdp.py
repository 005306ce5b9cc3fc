"""A small client for CDP over a websocket, without any package.

It shows what a worker has to speak. For more than a script use a library: Playwright for
Python and browser-use connect to the same URLs.
"""

import base64
import json
import os
import socket
import struct
import urllib.parse


class Refused(Exception):
    """The sidecar does not open the profile; the text says why."""


class CDP:
    """One connection to the browser of a profile."""

    def __init__(self, url, timeout=60):
        parts = urllib.parse.urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self._read = self._socket.makefile("rb")
        self._last_id = 0
        self._events = []
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        status = self._read.readline().decode()
        headers = {}
        for line in iter(self._read.readline, b"\r\n"):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if " 101 " not in status:
            problem = json.loads(self._read.read(int(headers["content-length"])))
            raise Refused(f"{problem['status']} {problem['code']}: {problem['detail']}")

    def call(self, method, session=None, **params):
        """Send a command, and return its result. Events that come meanwhile are kept."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._send(1, json.dumps(message).encode())
        while True:
            answer = self._message()
            if answer.get("id") != self._last_id:
                self._events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def wait(self, method):
        """Return the parameters of the next event of this name."""
        while True:
            for event in self._events:
                if event.get("method") == method:
                    self._events.remove(event)
                    return event["params"]
            self._events.append(self._message())

    def close(self):
        """Close the websocket with its handshake: without that, a worker counts as lost."""
        self._send(8, struct.pack("!H", 1000))
        while self._frame()[0] != 8:
            pass
        self._socket.close()

    def _send(self, opcode, payload):
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        self._socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))

    def _frame(self):
        """The sidecar sends each message in one frame, unmasked."""
        opcode, size = struct.unpack("!BB", self._exactly(2))
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        return opcode & 0x0F, self._exactly(size)

    def _exactly(self, size):
        data = self._read.read(size)
        if len(data) < size:
            raise ConnectionError("the sidecar has closed the connection")
        return data

    def _message(self):
        opcode, payload = self._frame()
        if opcode == 8:
            raise ConnectionError(f"the session ended: {payload[2:].decode()}")
        return json.loads(payload)
