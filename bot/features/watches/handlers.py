"""`/responder watch`: a direct message whenever a run ends, for an object or a responder, or waits for approval."""

from collections.abc import Mapping, Sequence

from bot.block_kit import names, notices
from bot.block_kit.text import code, foreign, readable_name
from bot.features import responses, subjects
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.command_text import match_names, parse_id, split_words
from bot.features.responders.matching import closest, matching
from bot.outbox.watches import APPROVALS, RESPONDER
from core.common.errors import ResponderBotError
from core.models import OfferedResponder

USAGE = "watch ~id | NAME | approvals"
OFF = ("off", "stop", "end")
SHOWN = 50


async def on_watch_command(context: Context) -> None:
    """Watch an object, a responder or approvals; `watch off` stops, `watch` alone lists."""
    words = split_words(context.text)
    if not words:
        await _list(context)
    elif words[0].lower() in OFF:
        await _unwatch(context, " ".join(words[1:]))
    elif [word.lower() for word in words] == [APPROVALS]:
        await _watch_approvals(context)
    elif (object_id := parse_id(words[0])) and len(words) == 1:
        await watch_object(context, object_id)
    else:
        await _watch_responder(context, " ".join(words))


async def watch_object(context: Context, object_id: str) -> None:
    """Watch an object. Raises ResponderBotError("not_found") if there is none with this id."""
    subject = await subjects.find(context.core, object_id)
    await _watch(context, subject.id, subject.id)


async def _watch_approvals(context: Context) -> None:
    responses.require_permission(context, "manageAction")
    await _watch(context, APPROVALS, APPROVALS, "a run waits for an approval that you may give")


async def _watch_responder(context: Context, typed: str) -> None:
    known = await _responders(context)
    if not known:
        raise ResponderBotError(
            "bad_request", "There is no alert yet to learn the names of responders by; type this again after the first."
        )
    responders = matching(typed, known)
    if len(responders) != 1:
        raise _no_single_match(typed, responders, known)
    await _watch(context, RESPONDER + responders[0].name, names.title(responders[0]))


async def _responders(context: Context) -> Sequence[OfferedResponder]:
    """All responders. Core lists them for an object, so the newest alert is asked about; none if there is no alert."""
    newest = await context.core.search("/api/alert/_search", range="0-1", sort=["-createdAt"])
    return await context.core.responders("alert", str(newest[0]["id"])) if newest else []


def _no_single_match(
    typed: str, matches: Sequence[OfferedResponder], known: Sequence[OfferedResponder]
) -> ResponderBotError:
    if matches:
        titles = ", ".join(names.title(r) for r in matches[:10])
        return ResponderBotError("bad_request", f"{typed[:100]!r} could be {titles}; which one?")
    meant = closest(typed, known)
    hint = f"Did you mean {names.title(meant)}?" if meant else "Give an id such as ~12, or a responder's name."
    return ResponderBotError("not_found", f"There is no responder {typed[:100]!r} to watch. {hint}")


async def _watch(context: Context, watched: str, name: str, when: str = "a run ends") -> None:
    is_new = await context.services.outbox.watches.add(context.team, context.user, watched)
    off = code(f"{context.services.command} watch off {name}", 250)
    state = "You watch" if is_new else "You already watch"
    await context.respond(
        notices.notice(f"{state} {foreign(name, 200)}: a direct message whenever {when}. {off} ends it.")
    )


async def _unwatch(context: Context, typed: str) -> None:
    outbox, command = context.services.outbox, context.services.command
    watched = await _watched(context)
    object_id = APPROVALS if typed.lower() == APPROVALS else parse_id(typed) or ""
    called = {name: key for key, title in watched.items() for name in (key.removeprefix(RESPONDER), title)}
    meant = {object_id} if object_id in watched else {called[name] for name in match_names(typed, list(called))}
    if len(meant) != 1:
        sentence = f"You don't watch {typed[:100] or 'that'}. {command} watch shows what you watch."
        raise ResponderBotError("not_found", sentence)
    (key,) = meant
    await outbox.watches.remove(context.team, context.user, key)
    await context.respond(notices.notice(f"You no longer watch {foreign(watched[key], 200)}."))


async def _watched(context: Context) -> Mapping[str, str]:
    """What this person watches, each with what people call it."""
    watched = list(await context.services.outbox.watches.of_user(context.team, context.user))
    titles: dict[str, str] = {}
    if any(w.startswith(RESPONDER) for w in watched):
        titles = {RESPONDER + r.name: names.title(r) for r in await _responders(context)}
    for key in watched:
        is_responder = key.startswith(RESPONDER)
        titles.setdefault(key, readable_name(key.removeprefix(RESPONDER)) if is_responder else key)
    return {key: titles[key] for key in watched}


async def _list(context: Context) -> None:
    command = context.services.command
    watched = await _watched(context)
    if not watched:
        example = code(f"{command} watch ~12", 100)
        await context.respond(notices.notice(f"You watch nothing. {example} tells you of each end of a run on ~12."))
        return
    lines = [f"• {foreign(title, 200)}" for title in list(watched.values())[:SHOWN]]
    rest = [f"and {len(watched) - SHOWN} more"] if len(watched) > SHOWN else []
    end = f"{code(f'{command} watch off', 100)} and one of these ends it."
    await context.respond(notices.notice("\n".join(["*You watch*", *lines, *rest, end])))


FEATURE = Feature(
    commands={
        "watch": Command(
            Entry(on_watch_command, Ack.WRITE),
            USAGE,
            "a direct message at the end of each run, or when one needs your approval",
        )
    }
)
