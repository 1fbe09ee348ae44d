"""`/responder find TEXT`: the alerts that have a text in what this person may see; `alert ~id`: one in full."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bot.block_kit import names, notices
from bot.block_kit.text import code
from bot.features import responses, subjects
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from bot.features.alerts.views.details import alert_in_full, found_alerts
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.command_text import find_ids, instead_of_id, split_name_and_id
from bot.features.responders.matching import closest
from bot.features.runs.views import undo_state
from core.common.words import some_of
from core.models import OBJECT_TYPES, Alert

MOST = 200
OTHER_WORDS = "Try a part of it with `{} find`"


async def on_find_command(context: Context) -> None:
    """List the newest alerts with all of these words, those of a group in a line; of the id of a case show that."""
    alerts = await subjects.search(context.core, context.text, own_clearance(context), MOST + 1)
    if not alerts and (ids := find_ids(context.text)):
        await show_in_full(context, ids[0])
    else:
        await _show(context, context.text, alerts)


async def on_command_without_id(context: Context) -> None:
    """List the alerts that have what was typed where the verb wants an id, the open ones if there are any.

    If it is one, show it where the verb only reads, with its buttons where it assigns, and ask whether to run on it.
    """
    verb, _, rest = context.text.partition(" ")
    command, is_run, slash = context.services.commands[verb.lower()], verb.lower() == "run", context.services.command
    responses.require_permission(context, command.permission)
    typed, name = instead_of_id(command.usage, rest)
    found = await subjects.search(context.core, typed, own_clearance(context), MOST)
    still_open = [alert for alert in found if alert.status != "Ignored"]
    only = still_open[0].id if len(still_open) == 1 else ""
    if is_run and not still_open and (" " in typed or not found):
        await _run_on_each(context, command, typed.split()[: subjects.MAX_WORDS], name, rest)
        return
    if only and (name if is_run else command.entry.ack is Ack.READ):
        await command.entry.handler(replace(context, text=f"{rest if is_run else name} {only}", asks=True))
        return
    if only and command.permission == "manageAlert":
        await show_in_full(context, only, note="Nothing was changed: press the button above.")
        return
    if is_run and found:
        meant = closest(name, (await subjects.targets(context.core, found[0].id)).offered)
        name = names.example(meant) if meant is not None else name or "NAME"
    then = f"Type {code(' '.join([slash, verb.lower(), *name.split(), only or '~id']), 200)}."
    await _show(context, typed, still_open or found, f" {then}" if found else f" {OTHER_WORDS.format(slash)}.")


async def _run_on_each(context: Context, command: Command, hosts: Sequence[str], name: str, rest: str) -> None:
    """Ask whether to run on the open alert of each host; say which alerts have it where that is not one alert each."""
    alerts = dict[str, list[str]]()
    for host in hosts:
        found = await subjects.search(context.core, host, own_clearance(context), MOST)
        alerts[host] = [alert.id for alert in found if alert.status != "Ignored"]
    first = " ".join(dict.fromkeys(having[0] for having in alerts.values() if having))
    if name and all(len(having) == 1 for having in alerts.values()):
        await command.entry.handler(replace(context, text=f"{rest} {first}", asks=True))
        return
    none, slash = "no open alert that you may see contains", context.services.command
    of = {code(host, 100): some_of(ids, 10) for host, ids in alerts.items()}
    said = [f"{host} is in {ids}" if ids else f"{none} {host}" for host, ids in of.items()]
    meant = closest(name, (await subjects.targets(context.core, first.split()[0])).offered) if name and first else None
    on = [host for host, ids in alerts.items() if ids and meant is not None and meant.target is not None]
    typed = " ".join([slash, "run", name or "NAME", first, *on])
    then = f"Type {code(typed, 200)}" if first else OTHER_WORDS.format(slash)
    await responses.show(context, "Nothing was run", notices.notice(f"Nothing was run: {'; '.join(said)}. {then}."))


async def _show(context: Context, text: str, alerts: Sequence[Alert], then: str = "") -> None:
    lines, held = await subjects.by_group(context, alerts[:MOST]), await context.core.measures()
    clearance, more = own_clearance(context), len(alerts) > MOST
    of_one_title = await context.services.outbox.alert_groups.of_one_title(lines, clearance)
    listed = partial(found_alerts, lines, text, then, held, of_one_title=of_one_title)
    found = partial(listed, more=more, clearance=clearance, channel=context.channel)
    await responses.show_with_buttons(context, "Alerts found", f"find:{text[:200]}", found)


async def on_alert_command(context: Context) -> None:
    """Show everything in the alert that this person may see."""
    _, object_id = split_name_and_id(context.text)
    await show_in_full(context, object_id)


async def show_in_full(context: Context, object_id: str, start: int = 0, channel: str = "", note: str = "") -> None:
    """Show the alert to the person who asked in `channel`, by default this one; its artifacts from number `start` on.

    Or a case, with what ran on its alerts. Raises ResponderBotError: not_found for ids of other objects, forbidden.
    """
    subject, document = await subjects.with_document(context.core, object_id)
    case, clearance = document.case if subject.id == document.id else None, own_clearance(context)
    subjects.require_visible(context, subject)
    if case is not None:
        tasks = await context.core.tasks_of(case.id, MOST_COUNTED + 1)
        alerts = await context.core.alerts_of(document, document.alert_ids)
        render = partial(case_card, case, document, tasks, alerts, clearance=clearance, is_posted=False)
    else:
        alert = subjects.as_alert(context, subject, document)
        ran = {run.id for run in document.actions if undo_state.is_in_force(run)}
        elsewhere = [one for one in await context.core.measures(target=alert.id) if ran.isdisjoint(one.actions)]
        note = note or f"`{context.services.command} list {alert.id}` shows what can run on it."
        in_full = partial(alert_in_full, alert, document, start=start, channel=channel or context.channel)
        render = partial(in_full, clearance=clearance, note=note, held=elsewhere)
    title = f"{OBJECT_TYPES[subject.kind]} {subject.id}"
    await responses.show_with_buttons(context, title, f"details:{subject.id}", render)


WITHOUT_ID = Entry(on_command_without_id)


FEATURE = Feature(
    commands={
        "find": Command(Entry(on_find_command), "find TEXT", "alerts with a text, address or tag"),
        "alert": Command(Entry(on_alert_command), "alert ~id", "an alert in full"),
    }
)
