"""`Request` was renamed to `Ticket`, its title is called subject, and it has a team."""

from typing import Any

from holdfast.serde import BaseMigration


class RequestIsTicket(BaseMigration):
    """Nothing is lost: the team is the conversation's."""

    types = ("Request",)

    def migrate_data(self, data: dict[str, Any], type_hint: str, context: Any) -> tuple[dict[str, Any], str | None]:
        """From `Request(title)` to `Ticket(subject, priority, team)`."""
        return {"subject": data["title"], "priority": "normal", "team": context.team or ""}, "Ticket"
