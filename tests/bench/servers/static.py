"""The lower bound of an HTTP answer: uvicorn with an ASGI application that sends static bytes."""

import json
import socket
import sys
from typing import Any

import uvicorn

from tests.bench.processes import send_line


def main(given: dict[str, Any]) -> None:
    body = b"x" * int(given["answer_bytes"])
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    sock = socket.create_server(("127.0.0.1", 0))
    send_line({"url": f"http://127.0.0.1:{sock.getsockname()[1]}"})
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_level="warning", server_header=False)
    uvicorn.Server(config).run([sock])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
