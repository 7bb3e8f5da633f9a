"""The app, as Django knows it."""

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    """`INSTALLED_APPS += ["holdfast.django"]`; its tables and permissions are called `holdfast`."""

    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Agents' checkpoints"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have settings checked, and threads deleted with all that belongs to them."""
        from holdfast.django import checks, deletion  # noqa: F401, PLC0415 - they need the models
