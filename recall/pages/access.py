"""Who looks: a signed-in user's reach, and what every page does the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.utils.cache import patch_vary_headers
from django.utils.text import capfirst

from ledger.domain.refusals import Refused
from recall.people import caller_of

View = Callable[..., HttpResponse]
TITLES = {
    403: "Not yours to see",
    404: "Not found",
    409: "This contradicts what is stored",
    422: "Not accepted",
}


def signed_in(view: View) -> View:
    """Ask for a sign-in first, also from within htmx; show a refusal as a page in the product's voice."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_sign_in(request)
        try:
            response = view(request, *args, caller=caller_of(request.user), **kwargs)
        except Refused as refusal:
            response = error_page(request, refusal)
        response["Cache-Control"] = "no-store"
        return response

    return guarded


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """To the sign-in and from there back to the page one was on; a form that was sent begins anew."""
    sign_in = resolve_url(settings.LOGIN_URL)
    htmx: Any = getattr(request, "htmx", None)
    if htmx:
        back = htmx.current_url_abs_path or resolve_url(settings.LOGIN_REDIRECT_URL)
        response = HttpResponse(status=401)
        response["HX-Redirect"] = f"{sign_in}?{urlencode({'next': back})}"
        return response
    back = request.get_full_path() if request.method == "GET" else resolve_url(settings.LOGIN_REDIRECT_URL)
    return redirect_to_login(back, sign_in)


def error_page(request: HttpRequest, refusal: Refused) -> HttpResponse:
    message = capfirst(refusal.message)
    context = {
        "status": refusal.status,
        "title": TITLES.get(refusal.status, "That did not work"),
        "message": message if message.endswith(".") else f"{message}.",
        "hint": refusal.hint,
        "request_id": getattr(request, "id", None),
    }
    return render(request, "error.html", context, status=refusal.status)


def wants_fragment(request: HttpRequest) -> bool:
    """htmx asks for a part. Back and boosted links also say HX-Request, and want the whole page."""
    htmx: Any = getattr(request, "htmx", None)
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def query_without_cursor(request: HttpRequest) -> str:
    """The filters of a list as the beginning of a query string, for its links to other pages."""
    kept = request.GET.copy()
    kept.pop("cursor", None)
    return f"{kept.urlencode()}&" if kept else ""


def show(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    part: str | None = None,
    status: int = 200,
) -> HttpResponse:
    """The page, or for htmx its named partial: same context, same rights."""
    name = f"{template}#{part}" if part is not None and wants_fragment(request) else template
    context = {"query": query_without_cursor(request), **context}
    response = render(request, name, context, status=status)
    patch_vary_headers(response, ["HX-Request", "Cookie"])
    return response
