"""The HTTP routes, and every failure as an answer in OpenAI's error shape."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engines.reference.serving.loop import LoopState
from engines.reference.serving.outcomes import (
    BusyError,
    DeadError,
    FullError,
    Gone,
    LoadingError,
    LoopError,
    RefusedError,
)
from engines.reference.serving.schemas import ChatBody, CompletionBody, ConfigureBody, DraftTreesBody
from engines.reference.serving.service import Service
from engines.reference.serving.wire import ApiError, BodyLimit

_MAX_BODY = 16 * 2**20
_CLIENT_LEFT = 499
_HEALTH = {LoopState.READY: 200, LoopState.LOADING: 503, LoopState.FAILED: 500}
_LOOP_STATUS = {RefusedError: 400, BusyError: 409, FullError: 429, DeadError: 500, LoadingError: 503}


def create_app(service: Service) -> FastAPI:
    """The application. All work is the service's."""
    app = FastAPI(title="orchestrate reference engine", docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, limit=_MAX_BODY)
    _add_error_answers(app)
    _add_inference(app, service)
    _add_operations(app, service)
    return app


def _add_inference(app: FastAPI, service: Service) -> None:
    @app.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        return await service.complete(body, request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        return await service.chat(body, request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return service.model_list()


def _add_operations(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": service.state.value}, _HEALTH[service.state])

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await service.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return await service.info()

    @app.post("/configure")
    async def configure(body: ConfigureBody) -> dict[str, Any]:
        return await service.configure(body)

    @app.post("/draft_trees")
    async def draft_trees(body: DraftTreesBody) -> dict[str, Any]:
        return await service.draft_trees(body)


def _add_error_answers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def known(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(LoopError)
    async def loop(_: Request, error: LoopError) -> Response:
        return ApiError(_LOOP_STATUS[type(error)], str(error)).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return _invalid(error).response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}").response()

    @app.exception_handler(Gone)
    async def gone(_: Request, __: Gone) -> Response:
        return Response(status_code=_CLIENT_LEFT)

    @app.exception_handler(Exception)
    async def fault(_: Request, __: Exception) -> Response:
        return ApiError(500, "internal error; the server's log has the details").response()


def _invalid(error: RequestValidationError) -> ApiError:
    """One line for the first field at fault; a union's alternatives are joined."""
    problems = error.errors()
    where = problems[0]["loc"][1:]
    if problems[0]["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {problems[0]['ctx']['error']}")
    if not where:
        return ApiError(400, problems[0]["msg"].removeprefix("Value error, "))
    field = str(where[0])
    if problems[0]["type"] == "extra_forbidden":
        return ApiError(400, f"`{'.'.join(map(str, where))}` is not a field that this server knows", param=field)
    same = [problem["msg"] for problem in problems if problem["loc"][1] == field]
    return ApiError(400, f"`{field}`: {' or '.join(dict.fromkeys(same))}", param=field)
