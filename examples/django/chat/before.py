"""The state as it was one deploy ago. `chat/checkpoint_migrations` leads from here to `chat/state.py`."""

from pydantic import BaseModel


class Request(BaseModel):
    """What the user wants."""

    title: str
