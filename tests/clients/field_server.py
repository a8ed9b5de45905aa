"""A model server on Starlette and uvicorn that does what servers in the field do.

`python -m uvicorn field_server:app`. The prompt says what: `block 5` stops the event loop for five
seconds, as a compilation does; `headers 150` replies with so many header lines.
"""

import asyncio
import json
import time

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

TOKENS = 30


async def health(_: Request) -> Response:
    return Response()


async def models(_: Request) -> Response:
    model = {"id": "field", "object": "model", "created": 1, "owned_by": "vllm"}
    return JSONResponse({"object": "list", "data": [model]})


async def metrics(_: Request) -> Response:
    return Response("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n")


async def chat(request: Request) -> Response:
    body = await request.json()
    words = body["messages"][-1]["content"].split()
    order, number = (words[0], int(words[1])) if len(words) > 1 else ("", 0)
    if order == "block":
        # Not at once: the requests beside this one must be under way.
        asyncio.get_running_loop().call_later(0.3, time.sleep, number)
        return JSONResponse(whole())
    if body.get("stream"):
        return StreamingResponse(events(), media_type="text/event-stream")
    # wait: the request is to be under way when the loop is blocked.
    await asyncio.sleep(0.01 if order == "headers" or not order else number)
    response = JSONResponse(whole())
    for index in range(number if order == "headers" else 0):
        response.headers[f"x-field-{index}"] = "v"
    return response


def whole() -> dict:
    message = {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "field", "choices": [choice], "usage": usage}


async def events():
    for index in range(TOKENS + 1):
        last = index == TOKENS
        delta = {} if last else {"content": f"t{index} "}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop" if last else None}
        event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "field", "choices": [choice]}
        yield f"data: {json.dumps(event)}\n\n"
        # wait: as long as an engine takes for a token.
        await asyncio.sleep(0.05)
    yield "data: [DONE]\n\n"


app = Starlette(
    routes=[
        Route("/health", health),
        Route("/v1/models", models),
        Route("/metrics", metrics),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]
)
