"""Settings. `DATABASE_URL` names a Postgres, else it is SQLite; `CHAT_RELEASE=before` is the code of the last deploy."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import django

BASE = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "only for the example")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
USE_TZ = True
ROOT_URLCONF = "project.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "holdfast.django",
    "chat",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_url = urlsplit(os.environ.get("DATABASE_URL", ""))
if _url.scheme.startswith("postgres"):
    _database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _url.hostname,
        "PORT": _url.port,
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "NAME": _url.path.lstrip("/"),
    }
else:
    _file = os.environ.get("DATABASE_FILE", str(BASE / "db.sqlite3"))
    _database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _file,
        "TEST": {"NAME": f"{_file}.test"},  # a file: each thread of a test has a connection of its own
        # A request that is a transaction and reads first can't wait for its turn to write, unless it begins like this.
        "OPTIONS": {"timeout": 30, **({"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {})},
    }
DATABASES = {"default": {**_database, "ATOMIC_REQUESTS": True}}

CHAT_RELEASE = os.environ.get("CHAT_RELEASE", "now")

HOLDFAST = {
    "REGISTRY": ["chat.state"],
    "MIGRATIONS": "chat.checkpoint_migrations",
    "CONTEXT": {"team": "conversation__team"},
    "RETENTION": {"days": 90, "strategy": "keep_latest"},
}
if CHAT_RELEASE == "before":
    HOLDFAST = {"REGISTRY": ["chat.before"]}
