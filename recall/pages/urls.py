"""The addresses of the pages (design: ui.md)."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from recall.pages import corrections, ledger, memories, outbox, overview, recalls

urlpatterns = [
    path(
        "sign-in/",
        LoginView.as_view(template_name="sign_in.html", redirect_authenticated_user=True),
        name="sign-in",
    ),
    path("sign-out/", LogoutView.as_view(next_page="sign-in"), name="sign-out"),
    path("", overview.overview, name="overview"),
    path("recalls/", recalls.recall_list, name="recalls"),
    path("recalls/new/", recalls.recall_new, name="recall-new"),
    path("recalls/<str:recall_id>/", recalls.recall_page, name="recall"),
    path("recalls/<str:recall_id>.json", recalls.recall_json, name="recall-json"),
    path("recalls/<str:recall_id>/hits/<int:position>/", recalls.hit_page, name="hit"),
    path("recalls/<str:recall_id>/left-out/", recalls.left_out_page, name="left-out"),
    path("memories/", memories.memory_list, name="memories"),
    path("memories/<str:memory_id>/", memories.memory_page, name="memory"),
    path("ledger/", ledger.ledger_list, name="ledger"),
    path("ledger/<str:event_id>/", ledger.event_page, name="event"),
    path("ledger/<str:event_id>/corrections/new/", corrections.correction_new, name="correction-new"),
    path("outbox/", outbox.outbox_page, name="outbox"),
    path("outbox/<int:entry_id>/retry/", outbox.retry, name="outbox-retry"),
    path("outbox/resume/", outbox.resume, name="outbox-resume"),
]
