"""A model server that reads bodies as engines on FastAPI do: forms by python-multipart, JSON by Python's own parser."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def models(_: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "tiny", "object": "model"}]})


async def health(_: Request) -> JSONResponse:
    return JSONResponse({})


async def form(request: Request) -> JSONResponse:
    async with request.form() as fields:
        texts = [(name, value) for name, value in fields.multi_items() if isinstance(value, str)]
        files = [(name, value.filename, len(await value.read())) for name, value in fields.multi_items() if not isinstance(value, str)]
    return JSONResponse({"texts": texts, "files": files})


async def body(request: Request) -> JSONResponse:
    """Python's `repr`, since JSON for a client has no NaN."""
    return JSONResponse({"read": repr(await request.json())})


ROUTES = [
    Route("/v1/models", models),
    Route("/health", health),
    Route("/v1/audio/transcriptions", form, methods=["POST"]),
    Route("/v1/chat/completions", body, methods=["POST"]),
]

if __name__ == "__main__":
    uvicorn.run(Starlette(routes=ROUTES), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
