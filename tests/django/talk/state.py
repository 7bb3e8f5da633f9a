from typing import Any

from pydantic import BaseModel

from holdfast.serde import BaseMigration


class Ticket(BaseModel):
    subject: str


class WithTeam(BaseMigration):
    """Puts what it is told of the thread into the data."""

    types = ("talk.state:Ticket",)

    def migrate_data(self, data: dict[str, Any], type_hint: str, context: Any) -> tuple[dict[str, Any], str | None]:
        return {"subject": f"{data['subject']} {context.team} {context.title}"}, type_hint
