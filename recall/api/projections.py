"""Projections over REST."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger.clock import now_ms
from recall.api.access import caller_of
from recall.api.arguments import ANY, query_of
from recall.projections import project
from recall.shapes import ProjectionBody, parse


class Projection(APIView):
    """What an agent should have before it starts: current memories by validity, stale ones apart; recorded."""

    scopes = {"POST": "read"}

    @extend_schema(operation_id="projection", request=ProjectionBody, responses={200: ANY})
    def post(self, request: Request) -> Response:
        query_of(request, ())
        asked = parse(ProjectionBody, request.data).request()
        answer = project(asked, caller=caller_of(request), surface="api", at=now_ms())
        return Response(answer, headers={"Cache-Control": "no-store"})
