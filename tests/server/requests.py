"""Requests to a server, with the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def post(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return send(urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}))


def get(url: str, **headers: str) -> tuple[int, Any]:
    return send(urllib.request.Request(url, headers=headers))


def send(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def upload(url: str, name: str, content: bytes, **fields: str) -> tuple[int, Any]:
    """Send a file and fields as a multipart form."""
    boundary = "----------boundary"
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    data = "".join(parts).encode() + head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return send(urllib.request.Request(url, data, {"Content-Type": f"multipart/form-data; boundary={boundary}"}))
