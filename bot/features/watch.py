"""`/responder watch`: one direct message for each end of what somebody watches, an object or a responder."""

from bot.cards import notices
from bot.cards.text import code, foreign
from bot.features import subjects
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.typed import by_name, nearest, object_id, words
from core.common.errors import ResponderBotError

USAGE = "watch ~id | NAME"
RESPONDER = "responder:"  # before a responder's name among what is watched
OFF = ("off", "stop", "end")


async def on_watch_command(moment: Context) -> None:
    """Watches it; `watch off` ends that; alone it shows what is watched."""
    parts = words(moment.text)
    if not parts:
        await _show(moment)
    elif parts[0].lower() in OFF:
        await _end(moment, " ".join(parts[1:]))
    elif (found := object_id(parts[0])) and len(parts) == 1:
        await start_watching(moment, found)
    else:
        await _watch_responder(moment, " ".join(parts))


async def start_watching(moment: Context, subject_id: str) -> None:
    """Watches an object, which must be there."""
    subject = await subjects.find(moment.core, subject_id)
    await _remember(moment, subject.id, subject.id)


async def _watch_responder(moment: Context, name: str) -> None:
    known = await _known_responders(moment)
    found = by_name(name, known)
    if len(found) != 1:
        raise _unclear(name, found, known)
    await _remember(moment, RESPONDER + found[0], found[0])


async def _known_responders(moment: Context) -> list[str]:
    """All names, as core explains them for any one object: the newest alert will do, wherever it is shown."""
    found, _ = await moment.core.search("/api/alert/_search", range="0-1", sort=["-createdAt"])
    if not found:
        raise ResponderBotError(
            "bad_request", "There is no alert yet to learn the names of responders by; type this again after the first."
        )
    return [r.name for r in await moment.core.responders("alert", str(found[0]["id"]), explain=True)]


def _unclear(name: str, found: list[str], known: list[str]) -> ResponderBotError:
    if found:
        return ResponderBotError("bad_request", f"{name[:100]!r} could be {', '.join(found[:10])}; which one?")
    meant = nearest(name, known)
    hint = f"Did you mean {meant}?" if meant else "Give an id such as ~12, or a responder's name."
    return ResponderBotError("not_found", f"There is no responder {name[:100]!r} to watch. {hint}")


async def _remember(moment: Context, what: str, words_for_it: str) -> None:
    new = await moment.tools.mail.watches.add(moment.team, moment.user, what)
    off = code(f"{moment.tools.command} watch off {words_for_it}", 250)
    state = "You watch" if new else "You already watch"
    await moment.say(
        notices.notice(f"{state} {foreign(words_for_it, 200)}: a direct message at each end of a run. {off} ends it.")
    )


async def _end(moment: Context, typed: str) -> None:
    watched = list(await moment.tools.mail.watches.of_user(moment.team, moment.user))
    wanted = object_id(typed) or ""
    names = {w.removeprefix(RESPONDER): w for w in watched}
    found = [wanted] if wanted in watched else [names[n] for n in by_name(typed, list(names))]
    if len(found) != 1:
        raise ResponderBotError(
            "not_found", f"You don't watch {typed[:100] or 'that'}. {moment.tools.command} watch shows what you watch."
        )
    await moment.tools.mail.watches.remove(moment.team, moment.user, found[0])
    await moment.say(notices.notice(f"You no longer watch {foreign(found[0].removeprefix(RESPONDER), 200)}."))


async def _show(moment: Context) -> None:
    watched = await moment.tools.mail.watches.of_user(moment.team, moment.user)
    if not watched:
        example = code(f"{moment.tools.command} watch ~12", 100)
        await moment.say(notices.notice(f"You watch nothing. {example} tells you of each end of a run on ~12."))
        return
    lines = [f"• {foreign(w.removeprefix(RESPONDER), 200)}" for w in list(watched)[:50]]
    left = [f"and {len(watched) - 50} more"] if len(watched) > 50 else []
    end = f"{code(f'{moment.tools.command} watch off', 100)} and one of these ends it."
    await moment.say(notices.notice("\n".join(["*You watch*", *lines, *left, end])))


FEATURE = Feature(
    commands={"watch": Command(Entry(on_watch_command, Ack.WRITE), USAGE, "a direct message at the end of each run")}
)
