"""The addresses below /v1/ (design: api.md)."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from recall.api import context, docs, errors, memories, operations, projections, recalls

urlpatterns = [
    path("memories", memories.Memories.as_view()),
    path("memories/bulk", memories.Bulk.as_view()),
    path("memories/<str:memory_id>", memories.OneMemory.as_view()),
    path("memories/<str:memory_id>/verify", memories.Verify.as_view()),
    path("memories/<str:memory_id>/erase", memories.Erase.as_view()),
    path("memories/<str:memory_id>/supersede", memories.Supersede.as_view()),
    path("memories/<str:memory_id>/history", memories.History.as_view()),
    path("memories/<str:memory_id>/related", memories.Related.as_view()),
    path("links", memories.Links.as_view()),
    path("links/<str:link_id>", memories.OneLink.as_view()),
    path("recall", recalls.Recall.as_view()),
    path("recall/batch", recalls.RecallBatch.as_view()),
    path("projection", projections.Projection.as_view()),
    path("recalls", recalls.Recalls.as_view()),
    path("recalls/<str:recall_id>", recalls.OneRecall.as_view()),
    path("context", context.Context.as_view()),
    path("context/search", context.ContextSearch.as_view()),
    path("events", context.Events.as_view()),
    path("events/<str:event_id>", context.OneEvent.as_view()),
    path("events/<str:event_id>/erase", context.Erase.as_view()),
    path("events/<str:event_id>/corrections", context.Corrections.as_view()),
    path("operations/<str:operation_id>", context.OneOperation.as_view()),
    path("ledger/verify", context.Verify.as_view()),
    path("quality", operations.Quality.as_view()),
    path("docs", docs.reference, name="api-docs"),
    path(
        "schema", SpectacularAPIView.as_view(authentication_classes=[], permission_classes=[]), name="schema"
    ),
    re_path(r"^.*$", errors.unknown_address),
]
