"""What users do on the page: send Slack's payload for each action and show the app's response."""

import html
import re
from dataclasses import replace
from typing import Any

from bot.slack_emulator import elements, interactions, posting
from bot.slack_emulator.delivery import Acknowledgement, AppDelivery
from bot.slack_emulator.errors import PageError, SlackError
from bot.slack_emulator.files import Files
from bot.slack_emulator.interactions import InteractionOrigin
from bot.slack_emulator.limits import problems
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.response_urls import ResponseUrls
from bot.slack_emulator.state import Channel, Json, Team, User
from bot.slack_emulator.views import Views

NO_COMMAND = (
    '{command} is not a valid command. In Slack, all messages that start with the "/" character '
    "are interpreted as commands."
)
CONNECTION_TROUBLE = "We had some trouble connecting. Try again?"
EXTERNAL = ("external_select", "multi_external_select")


class UserActions:
    """Performs the actions of users. Raises PageError when an action is not possible."""

    def __init__(
        self,
        team: Team,
        manifest: Manifest,
        delivery: AppDelivery,
        views: Views,
        response_urls: ResponseUrls,
        files: Files,
    ) -> None:
        self._team = team
        self._manifest = manifest
        self._delivery = delivery
        self._views = views
        self._response_urls = response_urls
        self._files = files
        self._busy: set[str] = set()
        self._loaded_options: dict[tuple[str, str, str, str], list[Json]] = {}
        self._chosen: dict[tuple[str, str], Json] = {}

    # messages

    async def command(self, user_id: str, channel_id: str, text: str) -> Json:
        """Run a slash command. Returns when the app acknowledged it or the deadline passed."""
        user, channel = self._user_and_channel(user_id, channel_id)
        command, _, rest = text.strip().partition(" ")
        if command == "/invite":
            return self._invite(channel, rest)
        if not self._manifest.has_command(command):
            return {"ok": False, "error": "unknown_command", "text": NO_COMMAND.format(command=command)}
        if self._manifest.escapes_mentions(command):
            rest = self._mentions(rest, "<@{0.id}|{0.name}>")
        payload = interactions.slash_command(
            self._team,
            user,
            channel,
            command,
            rest.strip(),
            token=self._delivery.verification_token,
            response_url=self._response_urls.issue(channel, user_id),
            trigger_id=self._views.new_trigger_id(user_id),
        )
        response = await self._delivery.request("slash_commands", "slash_commands", payload)
        if response.error is None:
            return self._show_answer(user, channel, command, response)
        return self._command_failed(user, channel, command, response.error)

    def _show_answer(self, user: User, channel: Channel, command: str, response: Acknowledgement) -> Json:
        if response.body.get("text") or response.body.get("blocks") or response.body.get("attachments"):
            try:
                self._response_urls.respond(channel, user.id, response.body)
            except SlackError as refused:
                return self._command_failed(user, channel, command, refused.code)
        return {"ok": True}

    def _command_failed(self, user: User, channel: Channel, command: str, error: str) -> Json:
        text = f'{command} failed with the error "{error}"'
        if error == "dispatch_failed":
            text = f"{command} failed because the app did not respond"
        self._notice(user.id, channel, text)
        return {"ok": False, "error": error, "text": text}

    def _invite(self, channel: Channel, names: str) -> Json:
        invited = {name.strip("@<>,") for name in names.split()}
        users = [u for u in self._team.users.values() if {u.name, u.id} & invited]
        for user in users:
            self.join(user.id, channel)
        return {"ok": True} if users else {"ok": False, "error": "user_not_found", "text": "No such member."}

    def join(self, user_id: str, channel: Channel) -> None:
        """Add a user to a channel and send the app the event."""
        if user_id in channel.members:
            return
        channel.members.add(user_id)
        self._team.publish_channel(channel)
        event = {
            "type": "member_joined_channel",
            "user": user_id,
            "channel": channel.id,
            "team": self._team.id,
        }
        kind = {"channel_type": "C" if channel.kind == "channel" else "G", "event_ts": self._team.next_ts()}
        if self._team.bot_user_id in channel.members:
            self._delivery.send_event("member_joined_channel", {**event, **kind}, channel)

    def say(self, user_id: str, channel_id: str, text: str, thread_ts: str | None, **more: Any) -> Json:
        """Post a message as a user."""
        user, channel = self._user_and_channel(user_id, channel_id)
        if channel.is_archived:
            raise PageError("is_archived", f"#{channel.name} is archived.")
        if not text.strip() and not more.get("files"):
            raise PageError("no_text", "The message is empty.")
        self.join(user.id, channel)
        message: Json = {
            "type": "message",
            "user": user.id,
            "text": self._stored_text(text),
            "team": self._team.id,
            **more,
        }
        if thread_ts is not None:
            if thread_ts not in channel.messages:
                raise PageError("thread_not_found", "The parent message of this thread no longer exists.", status=404)
            message["thread_ts"] = thread_ts
        posting.send(self._team, self._delivery, channel, message)
        channel.last_read[user_id] = message["ts"]
        self._tell_mention(channel, message)
        return message

    def _tell_mention(self, channel: Channel, message: Json) -> None:
        if f"<@{self._team.bot_user_id}>" in message["text"] and self._team.bot_user_id in channel.members:
            event = {**interactions.event_message(self._team, channel, message), "type": "app_mention"}
            event.pop("channel_type")
            self._delivery.send_event("app_mention", event, channel)

    def direct(self, user_id: str, other_id: str) -> Json:
        """Open the direct message channel with another user."""
        self.person(user_id)
        self._user(other_id)
        channel = self._team.open_dm(user_id, other_id)
        if other_id == self._team.bot_user_id:
            self._delivery.send_event("app_home_opened", self._home_event(user_id, channel, "messages"), channel)
        return self._team.channel_for_page(channel, user_id)

    def _home_event(self, user_id: str, channel: Channel, tab: str) -> Json:
        event = {"type": "app_home_opened", "user": user_id, "channel": channel.id, "tab": tab}
        return {**event, "event_ts": self._team.next_ts()}

    def read(self, user_id: str, channel_id: str) -> None:
        """Mark the channel as read."""
        self._team.mark_read(self._user_and_channel(user_id, channel_id)[1], user_id)

    # elements

    def origin(self, user_id: str, channel_id: str | None, ts: str | None, view_id: str | None) -> InteractionOrigin:
        """The message or view that a user interacts with."""
        self.person(user_id)
        if view_id is not None:
            view = self._views.find(user_id, view_id)
            if view is None:
                raise PageError("no_such_view", "This view is no longer open.", status=404)
            return InteractionOrigin(view=view)
        _, channel = self._user_and_channel(user_id, channel_id or "")
        message = channel.messages.get(ts or "") or channel.ephemerals.get(user_id, {}).get(ts or "")
        if message is None:
            raise PageError("no_such_message", "This message no longer exists.", status=404)
        return InteractionOrigin(channel=channel, message=message)

    async def act(
        self, user_id: str, origin: InteractionOrigin, block_id: str | None, action_id: str, value: Any
    ) -> Json:
        """Use an element. Sends block_actions, except for an input block without `dispatch_action`."""
        origin = _as_shown(origin, action_id, block_id)
        block, element = elements.find(origin.holder, action_id, block_id)
        chosen = await self._chosen_value(user_id, origin, block, element, value)
        if element["type"] not in elements.STATELESS:
            self._store_value(user_id, origin, block, element, chosen)
        if block["type"] == "input" and not block.get("dispatch_action"):
            return {"ok": True}
        action = elements.action_of(block, element, chosen, self._team.next_ts())
        view_id = None if origin.view is None else origin.view["id"]
        payload = interactions.block_actions(
            self._common("block_actions", user_id),
            origin,
            [action],
            trigger_id=self._views.new_trigger_id(user_id, view_id),
            response_url=self._response_url(user_id, origin),
            state=self._chosen.get((user_id, origin.key)) or elements.state_of(origin.holder),
        )
        return await self._interact(user_id, origin, "block_actions", payload)

    async def options(
        self, user_id: str, origin: InteractionOrigin, block_id: str | None, action_id: str, query: str
    ) -> Json:
        """Options of a select menu for the text typed so far."""
        block, element = elements.find(origin.holder, action_id, block_id)
        if element["type"] not in EXTERNAL:
            return {key: element[key] for key in ("options", "option_groups") if key in element}
        if len(query) < element.get("min_query_length", 3):
            return {"options": []}
        payload = interactions.block_suggestion(
            self._common("block_suggestion", user_id), origin, block, element, query
        )
        response = await self._delivery.request("interactive", "block_suggestion", payload)
        if response.error is not None:
            return {"options": [], "error": response.error}
        faults = problems("options", response.body)
        if faults:
            self._delivery.record("from_app", "block_suggestion refused", {"problems": faults})
            return {"options": [], "error": "invalid_options", "problems": faults}
        key = (user_id, origin.key, block["block_id"], element["action_id"])
        self._loaded_options.setdefault(key, []).extend(elements.options_of(response.body))
        return response.body

    async def _chosen_value(
        self, user_id: str, origin: InteractionOrigin, block: Json, element: Json, value: Any
    ) -> Json:
        if element["type"] in EXTERNAL and value and not self._known_options(user_id, origin, block, element):
            # The user chooses without having typed a query.
            await self.options(user_id, origin, block["block_id"], element["action_id"], "")
        chosen = elements.chosen(element, value, self._known_options(user_id, origin, block, element))
        if element["type"] == "file_input":
            chosen["files"] = [self._files.to_json(str(file_id)) for file_id in chosen["files"]]
        return chosen

    def _known_options(self, user_id: str, origin: InteractionOrigin, block: Json, element: Json) -> list[Json]:
        key = (user_id, origin.key, block["block_id"], element["action_id"])
        first = element.get("initial_options") or [element.get("initial_option")]
        return [*self._loaded_options.get(key, [])[::-1], *[option for option in first if option]]

    def _store_value(self, user_id: str, origin: InteractionOrigin, block: Json, element: Json, chosen: Json) -> None:
        if origin.view is not None:
            self._views.set_value(origin.view, block["block_id"], element["action_id"], chosen)
            return
        state = self._chosen.setdefault((user_id, origin.key), elements.state_of(origin.holder))
        state.setdefault(block["block_id"], {})[element["action_id"]] = chosen

    def _response_url(self, user_id: str, origin: InteractionOrigin) -> str | None:
        if origin.channel is None:
            return None
        return self._response_urls.issue(origin.channel, user_id, origin.message)

    # views

    async def submit(self, user_id: str, view_id: str, values: Json) -> Json:
        """Submit a modal: validate the fields as Slack does, then apply the app's response_action."""
        origin = self.origin(user_id, None, None, view_id)
        view = origin.view or {}
        if view["type"] != "modal" or view is not self._views.stack(user_id)[-1]:
            raise PageError("not_on_top", "Only the topmost modal can be submitted.")
        for block_id, actions in values.items():
            for action_id, value in actions.items():
                block, element = elements.find(origin.holder, action_id, block_id)
                chosen = await self._chosen_value(user_id, origin, block, element, value)
                self._store_value(user_id, origin, block, element, chosen)
        errors = elements.field_errors(view)
        if errors:
            self._views.show_errors(user_id, view, errors)
            return {"ok": True, "errors": errors}
        if view_id in self._busy:
            raise PageError("busy", "This form is already being submitted.", status=409)
        self._busy.add(view_id)
        try:
            return await self._submit(user_id, view)
        finally:
            self._busy.discard(view_id)

    def is_busy(self, view_id: str) -> bool:
        """Whether a submission of this view awaits the app's acknowledgement."""
        return view_id in self._busy

    async def _submit(self, user_id: str, view: Json) -> Json:
        payload = interactions.view_submission(
            self._common("view_submission", user_id),
            view,
            self._views.new_trigger_id(user_id, view["id"]),
            self._view_response_urls(user_id, view),
        )
        response = await self._delivery.request("interactive", "view_submission", payload)
        if response.error is not None:
            self._notice(user_id, None, CONNECTION_TROUBLE)
            return {"ok": False, "error": response.error, "text": CONNECTION_TROUBLE}
        try:
            return self._after_submission(user_id, view, response.body)
        except (SlackError, KeyError, TypeError) as refused:
            self._delivery.record("from_app", "view_submission refused", {"problem": str(refused), **_more(refused)})
            self._notice(user_id, None, CONNECTION_TROUBLE)
            return {"ok": False, "error": "invalid_response", "text": CONNECTION_TROUBLE, **_more(refused)}

    def _after_submission(self, user_id: str, view: Json, response: Json) -> Json:
        response_action = response.get("response_action")
        if response_action == "errors":
            return self._show_errors(user_id, view, response["errors"])
        if response_action == "update":
            self._views.replace(user_id, view, response["view"])
        elif response_action == "push":
            self._views.push_for(user_id, response["view"])
        elif response_action == "clear":
            self._views.close(user_id, view, whole_stack=True)
        elif response_action is None:
            self._views.close(user_id, view)
        else:
            raise SlackError("invalid_response_action")
        return {"ok": True}

    def _show_errors(self, user_id: str, view: Json, errors: dict[str, str]) -> Json:
        fields = {block["block_id"] for block in view["blocks"] if block["type"] == "input"}
        if not errors or not set(errors) <= fields:
            raise SlackError("invalid_errors", unknown_blocks=sorted(set(errors) - fields))
        self._views.show_errors(user_id, view, errors)
        return {"ok": True, "errors": errors}

    def _view_response_urls(self, user_id: str, view: Json) -> list[Json]:
        urls = []
        for block, element in elements.walk(view):
            if not element.get("response_url_enabled"):
                continue
            value = view["state"]["values"][block["block_id"]][element["action_id"]]
            channel = self._team.channels.get(value[elements.VALUE_KEYS[element["type"]]] or "")
            if channel is not None:
                ids = {"block_id": block["block_id"], "action_id": element["action_id"]}
                urls.append(
                    {**ids, "channel_id": channel.id, "response_url": self._response_urls.issue(channel, user_id)}
                )
        return urls

    async def close(self, user_id: str, view_id: str) -> Json:
        """Close a modal, unless the app has closed it already; sends view_closed if it has `notify_on_close`."""
        view = self._views.find(user_id, view_id)
        if view is None:
            return {"ok": True}
        whole = view["clear_on_close"]
        notified = [v for v in self._views.close(user_id, view) if v["notify_on_close"]]
        for closed in notified[:1] if whole else notified:  # a cleared stack sends one event, for its top view
            payload = interactions.view_closed(self._common("view_closed", user_id), closed, is_cleared=whole)
            await self._delivery.request("interactive", "view_closed", payload)
        return {"ok": True}

    def open_home(self, user_id: str) -> Json:
        """Open the app's Home tab."""
        self.person(user_id)
        if not self._manifest.has_home:
            raise PageError("no_home", "The manifest switches the Home tab off.")
        home = self._views.home(user_id)
        channel = self._team.open_dm(user_id, self._team.bot_user_id)
        event = self._home_event(user_id, channel, "home")
        self._delivery.send_event("app_home_opened", event if home is None else {**event, "view": home}, channel)
        return {"ok": True, "view": home}

    # shortcuts

    async def shortcut(self, user_id: str, callback_id: str, channel_id: str | None, ts: str | None) -> Json:
        """Run a global shortcut, or a message shortcut if `ts` is given."""
        self.person(user_id)
        kind = "global" if ts is None else "message"
        if not self._manifest.has_shortcut(callback_id, kind):
            raise PageError("no_such_shortcut", f"The manifest has no {kind} shortcut {callback_id!r}.", status=404)
        trigger_id, action_ts = self._views.new_trigger_id(user_id), self._team.next_ts()
        if ts is None:
            payload = interactions.shortcut(self._common("shortcut", user_id), callback_id, trigger_id, action_ts)
            return await self._interact(user_id, InteractionOrigin(), "shortcut", payload)
        origin = self.origin(user_id, channel_id, ts, None)
        payload = interactions.message_action(
            self._common("message_action", user_id),
            callback_id,
            origin,
            trigger_id=trigger_id,
            action_ts=action_ts,
            response_url=self._response_url(user_id, origin) or "",
        )
        return await self._interact(user_id, origin, "message_action", payload)

    # helpers

    async def _interact(self, user_id: str, origin: InteractionOrigin, what: str, payload: Json) -> Json:
        response = await self._delivery.request("interactive", what, payload)
        if response.error is None:
            return {"ok": True}
        text = "This app took too long to respond." if response.error == "operation_timeout" else CONNECTION_TROUBLE
        self._notice(user_id, origin.channel, text)
        return {"ok": False, "error": response.error, "text": text}

    def _common(self, kind: str, user_id: str) -> Json:
        return interactions.base(self._team, kind, self._user(user_id), self._delivery.verification_token)

    def _notice(self, user_id: str, channel: Channel | None, text: str) -> None:
        event = {"type": "notice", "channel": None if channel is None else channel.id, "text": text}
        self._team.feed.publish(event, to={user_id})

    def _user(self, user_id: str) -> User:
        user = self._team.users.get(user_id)
        if user is None:
            raise PageError("user_not_found", f"No user has the id {user_id!r}.", status=404)
        return user

    def person(self, user_id: str) -> User:
        """A user other than the bot. Raises PageError for the bot, and for nobody's id."""
        if user_id == self._team.bot_user_id:
            raise PageError("not_a_person", "The bot acts through its token only. Choose a person.")
        return self._user(user_id)

    def _user_and_channel(self, user_id: str, channel_id: str) -> tuple[User, Channel]:
        user = self.person(user_id)
        channel = self._team.channels.get(channel_id)
        if channel is None or not channel.is_visible_to(user_id):
            raise PageError("channel_not_found", f"{user.name} can't see a channel {channel_id!r}.", status=404)
        return user, channel

    def _stored_text(self, text: str) -> str:
        """Typed text as Slack stores it: `@name` becomes a mention, and &, < and > are escaped."""
        kept = re.split(r"(<(?:@U\w+|#C\w+|https?://[^<>\s]+)>)", text)
        safe = [part if n % 2 else html.escape(part, quote=False) for n, part in enumerate(kept)]
        return "".join(part if n % 2 else self._mentions(part, "<@{0.id}>") for n, part in enumerate(safe))

    def _mentions(self, text: str, form: str) -> str:
        by_name = {user.name: user for user in self._team.users.values()}

        def mention(match: re.Match[str]) -> str:
            user = by_name.get(match[1])
            return match[0] if user is None else form.format(user)

        return re.sub(r"(?<!\w)@([\w-]+)", mention, text)


def _as_shown(origin: InteractionOrigin, action_id: str, block_id: str | None) -> InteractionOrigin:
    """With the version of the message that has the element: Slack accepts a press on one that was updated since."""
    if origin.channel is None or origin.message is None or elements.has(origin.message, action_id, block_id):
        return origin
    earlier = reversed(origin.channel.earlier.get(origin.message["ts"], ()))
    shown = (replace(origin, message=one) for one in earlier if block_id and elements.has(one, action_id, block_id))
    return next(shown, origin)


def _more(refused: Exception) -> Json:
    return refused.more if isinstance(refused, SlackError) else {}
