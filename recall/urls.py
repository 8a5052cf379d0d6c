"""Every address of the product."""

from django.contrib import admin
from django.urls import include, path

from recall.api import operations

urlpatterns = [
    path("healthz", operations.healthz),
    path("readyz", operations.readyz),
    path("v1/", include("recall.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("recall.pages.urls")),
]

handler400 = "recall.api.errors.bad_request"
handler500 = "recall.api.errors.server_error"
