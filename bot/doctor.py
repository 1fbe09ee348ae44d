"""`responder-bot doctor`: each link between Slack and a responder, in turn, with what to do."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.channels import Channels
from bot.app.transports import EVENTS_PATH, web_client
from bot.features.base import Check
from bot.features.doctor import core_checks
from bot.outbox.errors import classify, classify_upload
from bot.settings import BotSettings
from core.client import CoreClient
from core.common.errors import ResponderBotError

CLOCK_MS = 60_000  # Slack refuses what is 5 minutes old; a minute off is worth a word
MEMBERS = 100  # people of a channel that are looked up


IsLinked = Callable[[str, str], Awaitable[bool]]
"""Whether a Slack person (team, user) is linked to a user of core."""


async def checks(
    settings: BotSettings,
    core: CoreClient,
    manifest: Mapping[str, Any],
    clock_ms: Callable[[], int],
    *,
    is_linked: IsLinked | None = None,
) -> Sequence[Check]:
    """All but the settings; each stands for itself, so one that fails hides no other.

    `is_linked` is asked where there is no key of core to ask it with.
    """
    found = [*await _core(core), key := await _key(settings, core)]
    if not settings.slack.bot_token:
        return [*found, Check("token", False, "none: set [slack] bot_token, or SLACK_BOT_TOKEN")]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        slack = web_client(settings.slack.bot_token, settings.slack, session)
        token, team, own_id = await _token(slack, manifest, clock_ms)
        found += token
        if team:
            found.append(await _files(slack))
        found.append(await _way_in(settings, slack))
        if not team:
            return found
        found += await Channels(settings.channel, slack).checks()
        if settings.bot.core_api_key:
            is_linked = _as_core_says(core) if key.ok else None
        return [*found, await _people(settings, slack, team, own_id, is_linked)]


async def _core(core: CoreClient) -> list[Check]:
    """Core, its database and its engines, as /health tells."""
    try:
        health = await core.health()
    except ResponderBotError as error:
        return [Check("core", False, f"{error.message} Start it: `responder-bot serve`, or `responder-bot core`.")]
    return core_checks(health)


async def _key(settings: BotSettings, core: CoreClient) -> Check:
    if not settings.bot.core_api_key:
        return Check("key", True, "none in the settings: `serve` makes its own; `bot` needs [bot] core_api_key")
    return await key_check(core)


async def key_check(core: CoreClient) -> Check:
    """Whether core takes the key, and it may act for people; a core that is silent says neither."""
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


async def _token(
    slack: AsyncWebClient, manifest: Mapping[str, Any], clock_ms: Callable[[], int]
) -> tuple[list[Check], str, str]:
    """The token, its scopes, and Slack's clock; the team and the bot's own id, or "" when there is none."""
    try:
        answer = await slack.auth_test()
    except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
        return [Check("token", False, classify(error, "").message)], "", ""
    headers = {str(name).lower(): str(value) for name, value in dict(answer.headers).items()}
    found = [Check("token", True, f"{answer.get('user')} in {answer.get('team')}")]
    found.append(_scopes(headers.get("x-oauth-scopes"), manifest))
    found.append(_clock(headers.get("date"), clock_ms()))
    return found, str(answer["team_id"]), str(answer.get("user_id"))


def _scopes(header: str | None, manifest: Mapping[str, Any]) -> Check:
    wanted = ((manifest.get("oauth_config") or {}).get("scopes") or {}).get("bot") or []
    if header is None:
        return Check("scopes", True, "not told by this Slack")
    missing = sorted(set(wanted) - {scope.strip() for scope in header.split(",")})
    if missing:
        return Check("scopes", False, f"missing: {', '.join(missing)}; reinstall the app from manifest.yml")
    return Check("scopes", True, f"all {len(wanted)} are there")


def _clock(date: str | None, now_ms: int) -> Check:
    try:
        theirs = int(parsedate_to_datetime(date or "").timestamp() * 1000)
    except (ValueError, TypeError):
        return Check("clock", True, "Slack's clock is not told")
    off_ms = abs(now_ms - theirs)
    if off_ms > CLOCK_MS:
        return Check("clock", False, f"{off_ms // 1000} s off from Slack's; set this machine's clock (NTP)")
    return Check("clock", True, "right to the minute")


async def _files(slack: AsyncWebClient) -> Check:
    """Whether Slack takes files. An address to upload to is asked for, and not used: nothing is ever shown."""
    try:
        await slack.api_call(
            "files.getUploadURLExternal", http_verb="GET", params={"filename": "doctor.txt", "length": "1"}
        )
    except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
        return Check("files", False, classify_upload(classify(error, ""), "").message)
    return Check("files", True, "long reports can be put under their messages")


async def _way_in(settings: BotSettings, slack: AsyncWebClient) -> Check:
    section = settings.slack
    if not section.app_token:
        if not section.signing_secret:
            return Check("socket", False, "neither [slack] app_token (Socket Mode) nor signing_secret (HTTP) is set")
        words = f"HTTP: Slack is to reach this machine's {section.host}:{section.port}{EVENTS_PATH}"
        return Check("requests", True, words)
    try:
        await slack.apps_connections_open(app_token=section.app_token)
    except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
        met = classify(error, "")
        if met.kind != "app_refused":
            return Check("socket", False, met.message)
        cure = "make an app-level token with connections:write, and switch Socket Mode on"
        return Check("socket", False, f"Slack refuses the app token ({met.code}); {cure}")
    return Check("socket", True, "Socket Mode can connect")


async def _people(
    settings: BotSettings, slack: AsyncWebClient, team: str, own_id: str, is_linked: IsLinked | None
) -> Check:
    """How many people in the channels are linked to users of core."""
    if is_linked is None:
        return Check("people", True, "can't be looked up without a right [bot] core_api_key")
    members: dict[str, None] = {}
    for channel in settings.channel:
        try:
            answer = await slack.conversations_members(channel=channel.id, limit=MEMBERS)
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError):
            continue  # its own line says what is wrong with it
        members.update(dict.fromkeys(user for user in answer["members"] if user != own_id))
    try:
        linked = sum([await is_linked(team, user) for user in list(members)[:MEMBERS]])
    except ResponderBotError as error:
        return Check("people", False, error.message)
    if members and not linked:
        return Check("people", False, "nobody is linked: `responder-bot user link LOGIN --slack-id ID` for each")
    return Check("people", True, f"{linked} of {min(len(members), MEMBERS)} in the channels are linked")


def _as_core_says(core: CoreClient) -> IsLinked:
    async def is_linked(team: str, user: str) -> bool:
        try:
            await core.person_by_slack(team, user)
        except ResponderBotError as error:
            if error.code == "not_found":
                return False
            raise
        return True

    return is_linked


def http_manifest(text: str, url: str) -> str:
    """The manifest for HTTP: the same app, with its requests sent to `url`.

    Raises ResponderBotError("bad_request") for an address that Slack would not take.
    """
    if not re.fullmatch(r"https://[^\s\"'#]+", url):
        raise ResponderBotError("bad_request", f"{url!r} is no https address; Slack sends requests to https only.")
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
