"""`responder-bot doctor`: checks each link between Slack and a responder, and says what to do."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.channels import Channels
from bot.app.transports import EVENTS_PATH, web_client
from bot.clearance import tlp_name
from bot.features.help import core_checks
from bot.identity import Identity, confirmed_email
from bot.outbox.errors import SLACK_FAILURES, classify, classify_connection, classify_upload, headers_of
from bot.settings import BotSettings
from core.client import CoreClient
from core.common.errors import ResponderBotError
from core.common.words import count
from core.models import Check

MAX_CLOCK_SKEW_MS = 60_000  # Slack's signatures are valid for 5 minutes
MAX_MEMBERS = 100  # people of a channel that are looked up

_LOST = "a message {} for which Slack gave no answer waits, since nobody can look whether it is there"
LEFT_OUT: Mapping[str, str] = {
    "channels:history": _LOST.format("to a public channel"),
    "groups:history": _LOST.format("to a private channel"),
    "im:history": _LOST.format("to a person"),
    "users:read": "nobody can be linked by e-mail, and nobody notices an app token of another app",
}
"""What it costs to leave out each optional scope of the manifest."""

ClearanceOf = Callable[[str, str], Awaitable[int | None]]
"""The clearance of the user that a Slack user (team, user id) is linked to; None if there is none."""

ReadLinks = Callable[[], Awaitable[Mapping[tuple[str, str], int]]]
"""Reads the clearance by team ("" if not known) and Slack id, and by "" and login."""


async def checks(
    settings: BotSettings,
    core: CoreClient,
    manifest: Mapping[str, Any],
    clock_ms: Callable[[], int],
    *,
    read_links: ReadLinks | None = None,
) -> Sequence[Check]:
    """Run all checks but those of the settings; one that fails hides no other.

    `read_links` is used if the settings have no key to ask core with.
    """
    key = Check("key", True, "none in the settings: `serve` makes its own; `bot` needs [bot] core_api_key")
    if settings.bot.core_api_key:
        key = await key_check(core)
    results = [*await core_checks(core), key]
    if not settings.slack.bot_token:
        return [*results, Check("token", False, "none: set [slack] bot_token, or SLACK_BOT_TOKEN")]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        running = await bot_checks(settings, session)
        slack = web_client(settings.slack.bot_token, settings.slack, session)
        token, team, bot_user_id, bot_id = await _token_checks(slack, manifest, clock_ms)
        results += token
        if team:
            results.append(await _files_check(slack))
        results.append(await _transport_check(settings, slack, bot_id))
        if not team:
            return [*results, *running]
        clearance_of: ClearanceOf | None = None
        channels = Channels(settings.channel, slack)
        results += await channels.checks()
        if settings.bot.core_api_key:
            identity = Identity(core, slack, clock_ms, link_by_email=settings.slack.link_by_email)
            clearance_of = identity.clearance if key.ok else None
        elif read_links is not None:
            clearance_of = _linked_in(read_links, slack, by_email=settings.slack.link_by_email)
        results += await _people_checks(channels, slack, team, bot_user_id, clearance_of)
        known = {check.name for check in results}
        return [*results, *(check for check in running if check.name not in known)]


async def bot_checks(settings: BotSettings, session: aiohttp.ClientSession) -> list[Check]:
    """What the bot on this machine says of itself, such as which replica sends, from its `/health`."""
    address = settings.health_address
    if not address:
        return [Check("bot", True, "not asked, since [bot] health_port is not set; `/responder doctor` in Slack tells")]
    try:
        async with session.get(f"http://{address}/health", timeout=aiohttp.ClientTimeout(total=3)) as response:
            parts = (await response.json())["parts"]
            return [Check(str(part["name"]), part["ok"] is True, str(part["message"])) for part in parts]
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
        return [Check("bot", True, f"none answers at {address}, so it does not run on this machine")]


async def key_check(core: CoreClient) -> Check:
    """Whether core accepts the key and lets it act on behalf of people; passes if core doesn't answer."""
    try:
        person = await core.current_user()
    except ResponderBotError as error:
        if error.code == "unavailable":
            return Check("key", True, "can't be tried while core does not answer")
        cure = "make one: `responder-bot user add bot --profile service`, and set it as [bot] core_api_key"
        return Check("key", False, f"core refuses it ({error.message}); {cure}")
    if "actOnBehalf" not in person.permissions:
        cure = "use the key of a user with the profile service (`responder-bot user add bot --profile service`)"
        return Check("key", False, f"it is that of {person.login}, who may not act for people; {cure}")
    return Check("key", True, f"{person.login}, who acts for people")


async def _token_checks(
    slack: AsyncWebClient, manifest: Mapping[str, Any], clock_ms: Callable[[], int]
) -> tuple[list[Check], str, str, str]:
    """Checks of the token, its scopes and the clock; the ids of team, bot's user and bot, "" if the token fails."""
    try:
        response = await slack.auth_test()
    except SLACK_FAILURES as error:
        return [Check("token", False, classify(error).message)], "", "", ""
    headers = headers_of(response)
    results = [Check("token", True, f"{response.get('user')} in {response.get('team')}")]
    results.append(scopes_check(headers.get("x-oauth-scopes"), manifest))
    results.append(_clock_check(headers.get("date"), clock_ms()))
    return results, str(response["team_id"]), str(response.get("user_id")), str(response.get("bot_id"))


def scopes_check(header: str | None, manifest: Mapping[str, Any]) -> Check:
    """Whether the scopes that Slack names in `X-OAuth-Scopes` are those of the manifest."""
    scopes = ((manifest.get("oauth_config") or {}).get("scopes") or {}).get("bot") or []
    if header is None:
        return Check("scopes", True, "not told by this Slack")
    missing = [scope for scope in scopes if scope not in {granted.strip() for granted in header.split(",")}]
    if needed := [scope for scope in missing if scope not in LEFT_OUT]:
        return Check("scopes", False, f"missing: {', '.join(needed)}; reinstall the app from manifest.yml")
    costs = "; ".join(f"without {scope}, {LEFT_OUT[scope]}" for scope in missing)
    return Check("scopes", True, costs or f"all {len(scopes)} are there")


def _clock_check(date: str | None, now_ms: int) -> Check:
    try:
        slack_ms = int(parsedate_to_datetime(date or "").timestamp() * 1000)
    except (ValueError, TypeError):
        return Check("clock", True, "Slack's clock is not told")
    skew_ms = abs(now_ms - slack_ms)
    if skew_ms > MAX_CLOCK_SKEW_MS:
        return Check("clock", False, f"{skew_ms // 1000} s off from Slack's; set this machine's clock (NTP)")
    return Check("clock", True, "right to the minute")


async def _files_check(slack: AsyncWebClient) -> Check:
    """Whether Slack accepts files. Asks for an upload URL and doesn't use it, so that nothing is shown."""
    try:
        await slack.api_call(
            "files.getUploadURLExternal", http_verb="GET", params={"filename": "doctor.txt", "length": "1"}
        )
    except SLACK_FAILURES as error:
        return Check("files", False, classify_upload(classify(error), "").message)
    return Check("files", True, "long reports can be put under their messages")


async def other_app(slack: AsyncWebClient, bot_id: str, app_token: str) -> str:
    """That the app token, which names its app, is of another app than the bot; "" if not, or if Slack doesn't tell."""
    named = re.match(r"xapp-\d+-(A[A-Z0-9]+)-", app_token)
    try:
        bot = (await slack.bots_info(bot=bot_id))["bot"]
    except SLACK_FAILURES:
        return ""  # without users:read
    if named is None or bot.get("app_id") in (None, named[1]):
        return ""
    return f"the app token is of the app {named[1]}, the bot's token of {bot['app_id']}; take both of one app"


async def _transport_check(settings: BotSettings, slack: AsyncWebClient, bot_id: str) -> Check:
    section = settings.slack
    if not section.app_token:
        if not section.signing_secret:
            return Check("socket", False, "neither [slack] app_token (Socket Mode) nor signing_secret (HTTP) is set")
        message = f"HTTP: Slack is to reach this machine's {section.host}:{section.port}{EVENTS_PATH}"
        return Check("requests", True, message)
    try:
        await slack.apps_connections_open(app_token=section.app_token)
    except SLACK_FAILURES as error:
        return Check("socket", False, classify_connection(error).message)
    problem = await other_app(slack, bot_id, section.app_token)
    return Check("socket", not problem, problem or "Socket Mode can connect")


async def _people_checks(
    channels: Channels, slack: AsyncWebClient, team: str, bot_user_id: str, clearance_of: ClearanceOf | None
) -> list[Check]:
    """How many people in the channels are linked to users of core, and how many of a channel may see less than it."""
    if clearance_of is None:
        return [Check("people", True, "can't be looked up without a right [bot] core_api_key")]
    members: dict[str, Sequence[str]] = {}
    for channel in channels.sections.values():
        try:
            response = await slack.conversations_members(channel=channel.id, limit=MAX_MEMBERS)
        except SLACK_FAILURES:
            continue  # the channel has a check of its own
        members[channel.id] = [user for user in response["members"] if user != bot_user_id]
    people = list(dict.fromkeys(user for users in members.values() for user in users))[:MAX_MEMBERS]
    try:
        clearances = {user: await clearance_of(team, user) for user in people}
    except ResponderBotError as error:
        return [Check("people", False, error.message)]
    except SLACK_FAILURES as error:
        return [Check("people", False, classify(error).message)]
    linked = {user: clearance for user, clearance in clearances.items() if clearance is not None}
    if people and not linked:
        return [Check("people", False, "nobody is linked: `responder-bot user link LOGIN --slack-id ID` for each")]
    checks = [Check("people", True, f"{len(linked)} of {len(people)} in the channels are linked")]
    for channel in channels.sections.values():
        less = [user for user in members.get(channel.id, ()) if linked.get(user, channel.clearance) < channel.clearance]
        if less:
            cure = "`user clearance` raises theirs, a lower `clearance` of the channel shows less"
            who = f"{count(len(less), 'member')} may see less than {tlp_name(channel.clearance)}"
            name = f"members of {channels.names[channel.id]}"
            checks.append(Check(name, False, f"{who}, which it shows: {cure}"))
    return checks


def _linked_in(read: ReadLinks, slack: AsyncWebClient, *, by_email: bool) -> ClearanceOf:
    links = dict[tuple[str, str], int]()

    async def clearance_of(team: str, user: str) -> int | None:
        links.update({} if links else await read())
        linked = links.get((team, user), links.get(("", user)))
        is_known = linked is not None or not by_email
        return linked if is_known else links.get(("", await confirmed_email(slack, team, user)))

    return clearance_of


def http_manifest(text: str, url: str) -> str:
    """The app manifest `text`, changed for HTTP: Slack sends its requests to `url`.

    Raises ResponderBotError("bad_request") for a URL that Slack would not accept.
    """
    if not re.fullmatch(r"https://[^\s\"'#]+", url):
        raise ResponderBotError("bad_request", f"{url!r} is not an https address; Slack sends requests to https only.")
    address = url.rstrip("/")
    if not address.endswith(EVENTS_PATH):
        address += EVENTS_PATH
    request_url = f'"{address}"'
    changed = re.sub(r"(?m)^(\s*)socket_mode_enabled: true$", r"\1socket_mode_enabled: false", text)
    for key in ("interactivity:", "event_subscriptions:"):
        changed = re.sub(rf"(?m)^(\s*){key}$", rf"\g<0>\n\g<1>  request_url: {request_url}", changed)
    changed = re.sub(r"(?m)^(\s*)interactivity:$\n", rf"\g<0>\g<1>  message_menu_options_url: {request_url}\n", changed)
    changed = re.sub(r"(?m)^(\s*)- command: (\S+)$", rf"\g<0>\n\g<1>  url: {request_url}", changed)
    return re.sub(r"(?m)\A(#.*\n)+", "# The Slack app for HTTP, made by `responder-bot doctor --manifest`.\n", changed)
