"""`/responder find TEXT`: the alerts that have a text in what this person may see of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bot.block_kit import names
from bot.block_kit.text import code
from bot.features import responses, subjects
from bot.features.alerts import details
from bot.features.alerts.views.details import found_alerts
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.command_text import find_ids, instead_of_id
from bot.features.responders.matching import closest
from core.models import Alert

MOST = 200


async def on_find_command(context: Context) -> None:
    """List the newest alerts with all of these words, those of a group in a line; of the id of a case show that."""
    alerts = await subjects.search(context.core, context.text, own_clearance(context), MOST + 1)
    if not alerts and (ids := find_ids(context.text)):
        await details.show(context, ids[0])
    else:
        await _show(context, context.text, alerts)


async def on_command_without_id(context: Context) -> None:
    """List the alerts that have what was typed where the verb wants an id, the open ones if there are any.

    If it is one, show it where the verb only reads, and ask whether to run on it.
    """
    verb, _, rest = context.text.partition(" ")
    command, is_run, slash = context.services.commands[verb.lower()], verb.lower() == "run", context.services.command
    responses.require_permission(context, command.permission)
    typed, name = instead_of_id(command.usage, rest)
    found = await subjects.search(context.core, typed, own_clearance(context), MOST)
    still_open = [alert for alert in found if alert.status != "Ignored"]
    only = still_open[0].id if len(still_open) == 1 else ""
    if only and (name if is_run else command.entry.ack is Ack.READ):
        await command.entry.handler(replace(context, text=f"{rest if is_run else name} {only}", asks=True))
        return
    if is_run and found:
        meant = closest(name, (await subjects.targets(context.core, found[0].id)).offered)
        name = names.example(meant) if meant is not None else name or "NAME"
    then = f"Type {code(' '.join([slash, verb.lower(), *name.split(), only or '~id']), 200)}."
    await _show(context, typed, still_open or found, f" {then}" if found else f" Try a part of it with `{slash} find`.")


async def _show(context: Context, text: str, alerts: Sequence[Alert], then: str = "") -> None:
    lines, more = await subjects.by_group(context, alerts[:MOST]), len(alerts) > MOST
    found = partial(found_alerts, lines, text, then, clearance=own_clearance(context), channel=context.channel)
    about = f"find:{text[:200]}"
    await responses.show_with_buttons(context, "Alerts found", about, lambda button: found(button=button, more=more))


WITHOUT_ID = Entry(on_command_without_id)


FEATURE = Feature(commands={"find": Command(Entry(on_find_command), "find TEXT", "alerts with a text, address or tag")})
