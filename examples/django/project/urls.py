"""Pages."""

from chat import views
from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("conversations/", views.begin),
    path("conversations/<int:number>/", views.show),
    path("conversations/<int:number>/say/", views.say),
    path("conversations/<int:number>/approve/", views.approve),
    path("conversations/<int:number>/say-async/", views.say_async),
]
