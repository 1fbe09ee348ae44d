"""Modals, their stack, the App Home, and the trigger ids that open modals."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from bot.slack_emulator.elements import state_of, with_ids
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.limits import problems
from bot.slack_emulator.state import Json, Team, copied, new_id

TRIGGER_LIFE_S = 3.0  # lifetime of a trigger_id in Slack
STACK_LIMIT = 3  # modals in one stack
TRIGGER_MEMORY_S = 600.0  # how long an expired trigger is reported as expired rather than invalid
VIEW_BYTES = 250_000  # Slack's `view_too_large`
DEFAULTS: Json = {
    "private_metadata": "",
    "callback_id": "",
    "external_id": "",
    "clear_on_close": False,
    "notify_on_close": False,
    "close": None,
    "submit": None,
    "title": None,
}


@dataclass
class Trigger:
    """A single-use, short-lived permission to open a modal for a user."""

    user_id: str
    created_at: float
    view_id: str | None
    used: bool = False


class Views:
    """Open modals and App Home of each user."""

    def __init__(self, team: Team, trigger_life_s: float = TRIGGER_LIFE_S) -> None:
        self._team = team
        self._trigger_life_s = trigger_life_s
        self._triggers: dict[str, Trigger] = {}
        self._stacks: dict[str, list[Json]] = {}
        self._homes: dict[str, Json] = {}

    def new_trigger_id(self, user_id: str, view_id: str | None = None) -> str:
        """Create a trigger_id for a user action; `view_id` is the modal it happened in."""
        now = self._team.clock()
        trigger_id = f"{int(now * 1000)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self._purge_expired(now)
        self._triggers[trigger_id] = Trigger(user_id, now, view_id)
        return trigger_id

    def _purge_expired(self, now: float) -> None:
        """Drop triggers that expired long ago. The dict is ordered by creation time."""
        while self._triggers:
            oldest = next(iter(self._triggers))
            if now - self._triggers[oldest].created_at < TRIGGER_MEMORY_S:
                return
            del self._triggers[oldest]

    def _valid_trigger(self, trigger_id: str) -> Trigger:
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise _invalid(["[ERROR] invalid `trigger_id` [json-pointer:/trigger_id]"])
        if trigger.used:
            raise SlackError("exchanged_trigger_id")
        if self._team.clock() - trigger.created_at > self._trigger_life_s:
            raise SlackError("expired_trigger_id")
        return trigger

    # calls of the app

    def open(self, trigger_id: str, content: Json) -> Json:
        """views.open: open a modal, replacing any open stack."""
        trigger = self._valid_trigger(trigger_id)
        view = self._new("modal", content)
        trigger.used = True
        return self.show(trigger.user_id, view)

    def show(self, user_id: str, view: Json) -> Json:
        """Show this view as the only one of the stack."""
        self._stacks[user_id] = [view]
        self._publish(user_id, "view_opened", view)
        return copied(view)

    def push(self, trigger_id: str, content: Json) -> Json:
        """views.push: push a modal onto the stack that the trigger came from."""
        trigger = self._valid_trigger(trigger_id)
        if not self._stacks.get(trigger.user_id):
            raise SlackError("not_found")
        view = self.push_for(trigger.user_id, content)
        trigger.used = True
        return view

    def push_for(self, user_id: str, content: Json) -> Json:
        """Push a modal onto the user's stack. Raises `push_limit_reached` at the fourth."""
        stack = self._stacks[user_id]
        if len(stack) >= STACK_LIMIT:
            raise SlackError("push_limit_reached")
        view = self._new("modal", content)
        view["root_view_id"] = stack[0]["id"]
        view["previous_view_id"] = stack[-1]["id"]
        stack.append(view)
        self._publish(user_id, "view_opened", view)
        return copied(view)

    def update(self, view_id: str | None, external_id: str | None, hash_: str | None, content: Json) -> Json:
        """views.update. Raises `hash_conflict` if the view changed since `hash_`."""
        user_id, view = self._find_any(view_id, external_id)
        if hash_ and hash_ != view["hash"]:
            raise SlackError("hash_conflict")
        return self.replace(user_id, view, content)

    def replace(self, user_id: str, view: Json, content: Json) -> Json:
        """Replace the content of an open view; values are kept where block and action ids match."""
        fresh = self._new(view["type"], content, replaces=view["id"])
        fresh.update({key: view[key] for key in ("id", "root_view_id", "previous_view_id")})
        fresh["state"] = {"values": state_of(fresh, view["state"]["values"])}
        view.clear()
        view.update(fresh)
        self._publish(user_id, "home" if view["type"] == "home" else "view_updated", view)
        return copied(view)

    def publish(self, user_id: str, hash_: str | None, content: Json) -> Json:
        """views.publish: set the App Home of one user."""
        self._team.user(user_id)
        before = self._homes.get(user_id)
        if before is None:
            self._homes[user_id] = view = self._new("home", content)
            self._publish(user_id, "home", view)
            return copied(view)
        if hash_ and hash_ != before["hash"]:
            raise SlackError("hash_conflict")
        return self.replace(user_id, before, content)

    # user actions

    def stack(self, user_id: str) -> list[Json]:
        """Open modals, topmost last."""
        return self._stacks.get(user_id, [])

    def home(self, user_id: str) -> Json | None:
        """The published App Home, if any."""
        return self._homes.get(user_id)

    def find(self, user_id: str, view_id: str) -> Json | None:
        """This user's modal or App Home with this id, if open."""
        views = [*self.stack(user_id), *([self._homes[user_id]] if user_id in self._homes else [])]
        return next((view for view in views if view["id"] == view_id), None)

    def close(self, user_id: str, view: Json, *, whole_stack: bool = False) -> list[Json]:
        """Close a view and those above it, or the whole stack. Returns the closed views, topmost first."""
        stack = self._stacks.get(user_id, [])
        if view not in stack:
            return []
        keep = 0 if whole_stack or view["clear_on_close"] else stack.index(view)
        closed = stack[keep:][::-1]
        del stack[keep:]
        for closed_view in closed:
            self._publish(user_id, "view_closed", closed_view)
        return closed

    def set_value(self, view: Json, block_id: str, action_id: str, value: Json) -> None:
        """Store an entered value in the view's state."""
        view["state"]["values"].setdefault(block_id, {})[action_id] = value

    def show_errors(self, user_id: str, view: Json, errors: dict[str, str]) -> None:
        """Show validation errors at their fields."""
        self._publish(user_id, "view_errors", view, errors=errors)

    def for_page(self, user_id: str, view: Json, **more: Any) -> Json:
        """The view as the page receives it."""
        stack = self.stack(user_id)
        depth = stack.index(view) + 1 if view in stack else 0
        return {**view, "stack_depth": depth, **more}

    def _publish(self, user_id: str, kind: str, view: Json, **more: Any) -> None:
        event = {"type": kind, "view": self.for_page(user_id, view, **more)}
        self._team.feed.publish(event, to={user_id})

    def _find_any(self, view_id: str | None, external_id: str | None) -> tuple[str, Json]:
        every = [(u, v) for u, stack in self._stacks.items() for v in stack] + list(self._homes.items())
        for user_id, view in every:
            if view["id"] == view_id or (external_id and view["external_id"] == external_id):
                return user_id, view
        raise SlackError("not_found")

    def _new(self, surface: str, content: Json, replaces: str | None = None) -> Json:
        self._check(surface, content, replaces)
        view_id = new_id("V")
        view: Json = {
            "id": view_id,
            "team_id": self._team.id,
            **copied({**DEFAULTS, **content}),
            "type": surface,
            "blocks": with_ids(content["blocks"]),
            "hash": f"{int(self._team.clock())}.{secrets.token_hex(4)}",
            "root_view_id": view_id,
            "previous_view_id": None,
            "app_id": self._team.app_id,
            "app_installed_team_id": self._team.id,
            "bot_id": self._team.bot_id,
        }
        view["state"] = {"values": state_of(view)}
        return view

    def _check(self, surface: str, content: Json, replaces: str | None) -> None:
        faults = problems("home" if surface == "home" else "modal", content)
        if faults:
            raise _invalid([f"[ERROR] {problem}" for problem in faults])
        if len(json.dumps(content).encode()) > VIEW_BYTES:
            raise SlackError("view_too_large")
        external_id = content.get("external_id")
        every = [v for stack in self._stacks.values() for v in stack]
        if external_id and any(v["external_id"] == external_id and v["id"] != replaces for v in every):
            raise SlackError("duplicate_external_id")


def _invalid(messages: list[str]) -> SlackError:
    return SlackError("invalid_arguments", response_metadata={"messages": messages})
