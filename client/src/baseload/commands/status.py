"""`baseload status`: who you are, what you have, what runs."""

from __future__ import annotations

from collections import Counter

from baseload.commands.app import new_app
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import credits_text, per_hour_text
from baseload.errors import ApiError

app = new_app()


@command(app)
def status(session: Session) -> None:
    """Show the API, the account, its credits, how many things are in which state, and what the
    leased machines cost."""
    account = session.get("/v1/account")
    counts = {
        noun: dict(Counter(each["status"] for each in session.items(f"/v1/{noun}")))
        for noun in ("providers", "regions", "nodes", "jobs")
    }
    machines = session.items("/v1/leases", live=True)
    api = session.transport.configuration.url
    health = _or_why_not(session, "/readyz")
    platform = _or_why_not(session, "/v1/platform")
    if session.screen.as_json:
        session.screen.json(
            {
                "api": api,
                "ready": health,
                "platform": platform,
                "account": account,
                "counts": counts,
                "machines": {
                    "count": len(machines),
                    "microcredits_per_hour": _hourly(machines),
                    "price_is_estimate": _is_estimate(machines),
                },
            }
        )
        return
    session.screen.fields(
        [
            ("api", api),
            ("ready", ", ".join(f"{part}: {state}" for part, state in health.items())),
            ("account", f"{account['name']} ({account['id']})"),
            ("plan", account.get("plan")),
            ("balance", f"{credits_text(account['balance_microcredits'])} credits"),
            *((noun, _counted(found)) for noun, found in counts.items()),
            ("machines", _machines_text(machines)),
        ]
    )


def _counted(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(found.items())) or "none"


def _machines_text(machines: list[Document]) -> str:
    """The leased machines that cost money now, and their price together."""
    if not machines:
        return "none leased"
    about = "about " * _is_estimate(machines)
    return f"{len(machines)} leased, {about}{per_hour_text(_hourly(machines))}"


def _hourly(machines: list[Document]) -> int:
    return sum(each["microcredits_per_hour"] or 0 for each in machines)


def _is_estimate(machines: list[Document]) -> bool:
    return any(each["price_is_estimate"] for each in machines)


def _or_why_not(session: Session, path: str) -> Document:
    try:
        return session.get(path)
    except ApiError as error:
        return {"status": error.title}
