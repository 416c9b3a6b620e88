"""The page of a ledger, for a browser on the same machine: read-only, unless a token allows to spend.

Nothing leaves the machine: the server listens on a loopback address, pages load nothing from elsewhere and say so to
the browser (Content-Security-Policy), and a request is answered only under a name of this machine (DNS rebinding) and
never from a page of another origin. The database is opened so that it refuses to write; only ``POST /spend`` with the
token opens it for writing.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shlex
import socket
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wpriv.config import plain_words
from wpriv.errors import MissingResource, Unsupported, UsageError, WprivError
from wpriv.ledger.overview import HEIGHT, WIDTH, Overview, percent, percent_up
from wpriv.ledger.scopes import ROOT, Place
from wpriv.ledger.service import Ledger, Receipt, Refused

NAMES = ("127.0.0.1", "localhost", "::1")
MAX_BODY = 65_536
FOLDER = Path(__file__).parent / "templates"
STYLE = Path(__file__).parents[1] / "training/reports/templates/page.css"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Answer = Callable[[Request], Awaitable[Response]]


def read_token(path: str | Path) -> str:
    """The token in a file, its first line.

    Raises:
        MissingResource: the file cannot be read. UsageError: its first line is empty or no plain text.
    """
    try:
        lines = Path(path).read_bytes().decode("ascii", "replace").splitlines()
    except OSError as error:
        raise MissingResource(f"{path}: the token cannot be read: {error.strerror}") from None
    token = lines[0].strip() if lines else ""
    if not token or not token.isprintable() or "\ufffd" in token:
        raise UsageError(
            f"{path}: the first line is to be the token, in ASCII; make one with "
            '`python -c "import secrets; print(secrets.token_urlsafe())"`'
        )
    return token


class Page:
    """The answers of the server; the ledger is read under a lock, by one request at a time."""

    def __init__(self, url: str, token: str | None):
        self.url, self.token = url, token
        self.ledger = Ledger(url, read_only=True)
        self.overview = Overview(self.ledger)
        self.lock = threading.Lock()
        environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {"percent": percent, "percent_up": percent_up}
        self.environment = environment

    def filled(self, name: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
        """A template with its values."""
        return HTMLResponse(self.environment.get_template(f"{name}.html.j2").render(values), status)

    def page(self, request: Request) -> Response:
        """The whole page; with ``words`` also what that release would cost, for browsers without scripts."""
        query = request.query_params
        words, scope = query.get("words", ""), query.get("scope", ROOT)
        return self.whole(words, scope, self._cost(words, scope) if words.strip() else None)

    def whole(self, words: str, scope: str, answer: dict[str, object] | None, status: int = 200) -> HTMLResponse:
        """The whole page with an answer to the form."""
        tree = self.ledger.charter.tree
        places = [name for name, _ in tree.parents]
        places += [str(Place(each.scope, each.name, part)) for each in tree.partitions for part in each.parts]
        form = {"words": words, "scope": scope, "places": places, "answer": answer}
        about = {"charter": self.ledger.charter, "url": self.ledger.store.url, "writes": self.token is not None}
        with self.lock:
            return self.filled("ledger", {**self._shown(), **form, **about}, status)

    def partial(self, _: Request) -> Response:
        """What changes as releases are spent."""
        with self.lock:
            return self.filled("overview", self._shown())

    def _shown(self) -> dict[str, object]:
        self.overview.update()
        size = {"width": WIDTH, "height": HEIGHT}
        return {"overview": self.overview, **size}

    def fixed(self, _: Request) -> Response:
        """What ran, if all of it had been fixed in advance."""
        with self.lock:
            self.overview.update()
            return self.filled("fixed", {"fixed": self.overview.fixed()})

    def cost(self, request: Request) -> Response:
        """Return what the release in the form would take of each limit, as a part of the page; nothing is spent."""
        query = request.query_params
        return self.filled("answer", {"answer": self._cost(query.get("words", ""), query.get("scope", ROOT))})

    def _cost(self, words: str, scope: str) -> dict[str, object]:
        try:
            require_sentence(words)
            with self.lock:
                costs = self.ledger.cost(words, scope=scope)
                fits = self.ledger.fits(words, scope=scope)
        except Refused as error:
            return {"kind": "refused", "message": str(error)}
        except (UsageError, Unsupported) as error:
            return {"kind": "wrong", "message": str(error)}
        form = {"words": words, "scope": scope, "key": f"page-{secrets.token_hex(8)}"}
        return {"kind": "fits", "costs": costs, "fits": fits, "writes": self.token is not None, **form}

    async def spend(self, request: Request) -> Response:
        """Spend a release, where the token is right."""
        if self.token is None:
            return self._answered(request, 403, "wrong", "this page is read-only: it was started without --token-file")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return self._answered(request, 413, "wrong", f"a request has at most {MAX_BODY} bytes")
        fields = dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace")))
        scheme, _, word = request.headers.get("authorization", "").partition(" ")
        given = word.strip() if scheme.lower() == "bearer" else fields.get("token", "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return self._answered(request, 401, "wrong", "the token is missing or wrong. Nothing was spent")
        return await run_in_threadpool(self._spent, request, fields)

    def _spent(self, request: Request, fields: dict[str, str]) -> Response:
        words, about = fields.get("words", ""), {name: fields.get(name) or None for name in ("key", "actor", "reason")}
        try:
            require_sentence(words)
            with Ledger(self.url) as ledger:
                receipt = ledger.spend(words, scope=fields.get("scope") or ROOT, **about)
        except Refused as error:
            return self._answered(request, 409, "refused", str(error))
        except (UsageError, Unsupported) as error:
            return self._answered(request, 400, "wrong", str(error))
        again = " before; nothing was spent again" if receipt.repeated else ""
        message = f"release {receipt.release}: {receipt.state}{again}, entry {receipt.seq} {receipt.digest}"
        return self._answered(request, 200, "spent", message, receipt)

    def _answered(
        self, request: Request, status: int, kind: str, message: str, receipt: Receipt | None = None
    ) -> Response:
        """An answer to ``POST /spend``: JSON, a part of the page for its script, or the whole page."""
        extra = {"WWW-Authenticate": "Bearer"} if status == 401 else {"HX-Trigger": "spent"}
        if "application/json" in request.headers.get("accept", ""):
            about = {} if receipt is None else receipt.as_dict()
            return JSONResponse({"kind": kind, "message": message, **about}, status, headers=extra)
        answer: dict[str, object] = {"kind": kind, "message": message}
        if "hx-request" in request.headers:
            response = self.filled("answer", {"answer": answer}, status)
        else:
            response = self.whole("", ROOT, answer, status)
        response.headers.update(extra)
        return response

    async def broken(self, request: Request, error: Exception) -> Response:
        """A ledger that cannot be read, or whose entries do not follow from each other."""
        return self.filled("broken", {"message": str(error), "url": self.ledger.store.url}, 503)


def require_sentence(words: str) -> None:
    """Refuse what is no sentence of steps, or names a file: a request reads no files of this machine.

    Raises:
        UsageError: it is a recipe, or a value is a path or the name of a file.
    """
    if not plain_words.is_sentence(words):
        raise UsageError(
            f"a release is written gauss sigma=100 n=10; found {words[:60]!r}. Recipes are read by `wpriv ledger spend`"
        )
    try:
        parts = shlex.split(words)
    except ValueError:
        raise UsageError(f"{words[:80]!r} has a quote without its end") from None
    for part in parts:
        for value in re.split(r"[=,:;]", part)[1:]:
            if value.startswith(("/", "~", "\\")) or os.path.isfile(value):
                raise UsageError(f"{part[:60]!r} names a file, and a page reads none. Use `wpriv ledger spend`")


def guard(names: tuple[str, ...]) -> Callable[[Request, Answer], Awaitable[Response]]:
    """A check before every answer: the name of the server and the origin of the page that asks."""

    async def dispatch(request: Request, answer: Answer) -> Response:
        host = request.headers.get("host", "")
        refusal = None
        if _hostname(host) not in names:
            refusal = PlainTextResponse(f"this server answers under {', '.join(names)} only\n", 421)
        elif _is_foreign(request, host):
            refusal = PlainTextResponse("requests from pages of other origins are refused\n", 403)
        response = await answer(request) if refusal is None else refusal
        response.headers.update(HEADERS)
        return response

    return dispatch


def _hostname(host: str) -> str:
    """The name in a Host header, without its port; "" where there is none, or more than a name and a port."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([\w.-]+))(?::\d{1,5})?", host)
    return (match[1] or match[2]).lower() if match else ""


def _is_foreign(request: Request, host: str) -> bool:
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    if origin is not None and origin.lower() != f"http://{host}".lower():
        return True
    # a link from elsewhere may open the page; nothing else of another site may ask
    opens = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    return site not in ("same-origin", "none") and not opens


def application(url: str, *, token: str | None = None, names: tuple[str, ...] = NAMES) -> Starlette:
    """The page of a ledger as an ASGI application.

    Args:
        url: of the ledger. token: with which ``POST /spend`` writes; None for a page that only reads.
        names: under which the server answers, as hosts of the URL.
    Raises:
        UsageError: no ledger there. MissingResource: the database cannot be opened.
    """
    page = Page(url, token)

    def file(path: Path, kind: str) -> Callable[[Request], Response]:
        content = path.read_bytes()
        return lambda _: Response(content, media_type=kind)

    routes = [
        Route("/", page.page),
        Route("/overview", page.partial),
        Route("/fixed", page.fixed),
        Route("/cost", page.cost),
        Route("/spend", page.spend, methods=["POST"]),
        Route("/page.css", file(STYLE, "text/css")),
        Route("/ledger.css", file(FOLDER / "ledger.css", "text/css")),
        Route("/htmx.min.js", file(FOLDER / "htmx.min.js", "text/javascript")),
    ]
    check = Middleware(BaseHTTPMiddleware, dispatch=guard(names))
    return Starlette(routes=routes, middleware=[check], exception_handlers={WprivError: page.broken})


def serve(url: str, *, host: str, port: int, token: str | None, ready: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted.

    Args:
        host: a loopback address. port: 0 for any that is free. ready: is called with the address of the page.
    Raises:
        UsageError: the host is not one of this machine alone, or the port is taken. Errors of ``application``.
    """
    import uvicorn

    if host not in NAMES:
        raise UsageError(
            f"`host` is one of {', '.join(NAMES)}, since the page is for this machine alone; found {host[:60]!r}. From "
            f"another machine, use ssh -L {port}:127.0.0.1:{port}"
        )
    app = application(url, token=token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"`port` {port} of {host} cannot be used: {os.strerror(error.errno or 0)}. Choose another one"
        ) from None
    name = f"[{host}]" if ":" in host else host
    options = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="off", ws="none"
    )
    ready(f"http://{name}:{listener.getsockname()[1]}/")
    uvicorn.Server(options).run(sockets=[listener])
