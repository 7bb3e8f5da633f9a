"""The state as it is now. What was stored as a `Request` is read as a `Ticket`."""

from pydantic import BaseModel


class Ticket(BaseModel):
    """What the user wants, and who looks after it."""

    subject: str
    priority: str = "normal"
    team: str = ""
