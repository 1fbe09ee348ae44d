"""`/responder audit ~id`: who decided what about an object, in plain sentences."""

import re
from collections.abc import Container, Mapping, Sequence
from itertools import chain

from bot.block_kit.elements import MAX_LINES
from bot.block_kit.text import (
    SECTION_LIMIT,
    VERSION,
    defang_indicators,
    foreign,
    in_own_time,
    person_name,
    plain_name,
    readable_name,
    section,
    slack_date,
    utc_time,
)
from bot.block_kit.text import said as called
from bot.clearance import CLEAR, RED, RedactedView, Subject, artifact_name, may_see
from bot.features import command_text, responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.runs.views import runs, undo_state
from bot.message import Message
from core.common.clock import MINUTE_MS
from core.common.words import some_of
from core.models import Action, AuditRow, Document

ROW_CHARS = 700  # without the names of what runs were on
MAX_TEXTS = 60  # of Slack's length: a modal takes 250,000 characters
RUNS = ("object", "action", "undoes")  # the keys of a row that name runs
Views = Mapping[str, RedactedView]  # by run
Ran = tuple[str, str, str]
"""What people call a run, what it was on, and ` for 1 hour`; foreign text, not escaped."""
_LOGIN = re.compile(r"[^@\s]+@[^@\s]+")


async def on_audit_command(context: Context) -> None:
    """Show the story of an alert, a case, a run or a bulk; core leaves out what this person may not see."""
    _, object_id = command_text.split_name_and_id(context.text)
    rows = await context.core.audit(object_id)
    documents = await subjects.documents(context.core, [object_id, *(row.object for row in rows)])
    await responses.show(context, "Audit", audit(object_id, rows, documents, own_clearance(context)))


def audit(object_id: str, rows: Sequence[AuditRow], documents: Sequence[Document], clearance: int) -> Message:
    """The story of an object for this clearance, from rows and the documents of all that these are about."""
    acted = {action.id: action for document in documents for action in document.actions}
    views = {
        action.id: RedactedView(Subject.of_action(action, document), clearance)
        for document in documents
        for action in document.actions
    }
    ran = {id_: _ran(action, views[id_]) for id_, action in acted.items()}
    ran |= {row.object: _ran_again(row.object, acted, views, ran) for row in rows if row.what == "bulk.retried"}
    together = [(run, views[id_]) for id_, run in acted.items() if run.bulk == object_id]
    about = _about(object_id, documents, views, clearance)
    if together:
        about = f"{object_id}: {runs.name(together[0][0])} on {runs.distinct_targets(together)}"
    shown = _redacted_rows(rows, documents, acted, views, clearance)
    return story(about, shown, ran, [action.id for action, _ in together])


def _ran(action: Action, view: RedactedView) -> Ran:
    on = runs.all_targets_in_plain(action, view) or runs.target(view)
    return runs.title(action), on, undo_state.for_how_long(action)


def _ran_again(bulk_id: str, acted: Mapping[str, Action], views: Views, ran: Mapping[str, Ran]) -> Ran:
    """Likewise of those runs of a bulk that may be shown."""
    again = [ran[id_] for id_, run in acted.items() if run.bulk == bulk_id and views[id_].is_open]
    title = again[0][0] if again else "A run"
    return title, f"{some_of([on for _, on, _ in again], runs.MAX_FULL_TARGETS)} ({bulk_id})", ""


def _about(object_id: str, documents: Sequence[Document], views: Views, clearance: int) -> str:
    """An id with its title, before that of what belongs to it, who made it if it is a case, and what is withheld."""
    found, about = [(one, subject) for one in documents if (subject := Subject.in_document(one, one.id))], object_id
    if found:
        document, subject = min(found, key=lambda one: one[0].id != object_id)
        view = RedactedView(subject, clearance)
        about += f": {runs.of_root(subject, view)}"
        if document.id == object_id and view.is_open:
            about += _of_case(document)
    above = [run for one in documents for run in one.actions if not views[run.id].is_open]
    if above and object_id in [document.id for document in documents]:
        about += f" · {runs.hidden_line(above, views)}"
    return about


def _of_case(document: Document) -> str:
    """Who made a case, or in which case an alert is."""
    if document.case is not None:
        return f" · made by {person_name(document.case.created_by)}"
    case = document.alert.case if document.alert is not None else None
    return f" · in case {case}: `/responder audit {case}` tells what ran there" if case else ""


def _redacted_rows(
    rows: Sequence[AuditRow], documents: Sequence[Document], acted: Mapping[str, Action], views: Views, clearance: int
) -> list[AuditRow]:
    """The rows as this clearance may see them, with the targets that each is about."""
    found = [subject for one in documents if (subject := Subject.in_document(one, one.id)) is not None]
    every = chain.from_iterable((*subject.artifacts, *subject.others) for subject in found)
    hidden = [one for one in every if not may_see(clearance, one.tlp)]
    called = {one.id: artifact_name(one) for subject in found for one in RedactedView(subject, clearance).artifacts()}
    of_all, gone = (RedactedView(Subject("alert", "", "", tlp, others=(*hidden,)), clearance) for tlp in (CLEAR, RED))

    def shown(row: AuditRow) -> AuditRow:
        row = _redacted(row, views.get(row.object, gone if "message" in row.texts else of_all), of_all)
        if row.what == "run.refused":
            row = _on_its_target(row, called)
        return _of_targets(row, acted[row.object], views[row.object]) if row.object in acted else row

    return [shown(row) for row in rows]


def _of_targets(row: AuditRow, action: Action, view: RedactedView) -> AuditRow:
    """The row of a run with those of its targets that it is about, as the alert writes them; without if it is of all.

    What undoes a run on some of its targets acts on just these.
    """
    text = row.texts.get("target", "")
    named = [one for one in action.target or () if f" {one.data} ".casefold() in f" {text} ".casefold()]
    is_part = bool(named) and ("undoes" in row.row or len(named) < len(action.target or ()))
    on = runs.all_targets_in_plain(action.model_copy(update={"target": named}), view)
    sentence = row.sentence.replace(f"; target: {text}", "", 1)
    return row.model_copy(update={"sentence": sentence, "texts": {**row.texts, "target": on if is_part else ""}})


def _redacted(row: AuditRow, view: RedactedView, of_all: RedactedView) -> AuditRow:
    """The row with its texts as cards show them: what a run said whole or not at all, the rest without what is hidden.

    That is what is hidden `of_all` that the story is about: people speak of one where they decide on another.
    """
    by, did, said = row.sentence[: len(row.by)], row.sentence[len(row.by) :], row.texts.get("message", "")
    did = view.inputs(did.replace(f'"{said}"', f'"{view.report(said)}"'))
    texts = {name: of_all.text(text) for name, text in row.texts.items()}
    return row.model_copy(update={"sentence": by + of_all.text(did), "texts": texts})


def _on_its_target(row: AuditRow, called: Mapping[str, str]) -> AuditRow:
    """The refusal of a run that was to act on these artifacts of the object, where they may all be named."""
    targets = row.row.get("target", ())
    if not targets or not called.keys() >= {*targets}:
        return row
    on = ", ".join(called[one] for one in targets)
    return row.model_copy(update={"sentence": row.sentence.replace(f" on {row.object}", f" on {on}", 1)})


def story(about: str, rows: Sequence[AuditRow], ran: Mapping[str, Ran], together: Container[str] = ()) -> Message:
    """Who decided what `about` an object (mrkdwn) and what belongs to it; the newest lines if they are many.

    What somebody decided alike on several that ran `together` is one line, unless what happened to one of them in
    between would then come later.
    """
    asked = {row.row.get("extension"): row for row in rows if row.what == "extension.requested"}
    lines = _lines(rows, ran, asked, together)
    told = [_told(line, ran, asked) for line in lines[-MAX_LINES:]]
    while sum(map(len, told)) > MAX_TEXTS:
        del told[0]
    title = f"*Audit of {about}*"
    all_rows = "An administrator's `responder-bot audit export` has all."
    title += f": the last {len(told)} of {len(lines)} rows. {all_rows}" if len(told) < len(lines) else ""
    return Message(title, tuple(map(section, [title, *chain(*told)])))


def _lines(
    rows: Sequence[AuditRow], ran: Mapping[str, Ran], asked: Mapping[str | None, AuditRow], together: Container[str]
) -> list[list[AuditRow]]:
    """The rows that are one line each: what was done alike in a minute to runs that ran `together`."""
    lines, newest, last = list[list[AuditRow]](), dict[object, int](), dict[object, int]()
    titles = {run_id: what for run_id, (what, *_) in ran.items()}
    for row in rows:
        same = row.at // MINUTE_MS, _said(row, titles, _lasts(row, ran, asked))
        of = {row.row[key] for key in RUNS if key in row.row}
        if row.object not in together or newest.get(same, -1) <= max(last.get(run, -1) for run in of):
            newest[same] = len(lines)
            lines.append([])
        lines[newest[same]].append(row)
        last |= dict.fromkeys(of, newest[same])
    return lines


def _told(line: Sequence[AuditRow], ran: Mapping[str, Ran], asked: Mapping[str | None, AuditRow]) -> list[str]:
    """When, who did what: of several rows the first, with what all of them are on."""
    first = line[0]
    named = {one: f"{what} on {target}" for one, (what, target, _) in ran.items()}
    for key in RUNS:
        runs_of = [(one, str(one.row.get(key))) for one in line]
        each = dict.fromkeys((run, _on(one, key, ran, asked)) for one, run in runs_of if run in ran)
        named |= {run: f"{ran[run][0]} on {', '.join(on for _, on in each)}" for run, _ in list(each)[:1]}
    said = _said(first, named, _lasts(first, ran, asked))
    said = said.replace(': "', ':\n"', 1) if len(line) > 1 else said
    return _in_texts(f"{slack_date(first.at)} {said}")


def _in_texts(line: str) -> list[str]:
    """A line in as few texts as it fits into, parted between names."""
    texts = [""]
    for part in re.split("(?<=, )", line):
        texts += [""] if len(texts[-1]) + len(part) > SECTION_LIMIT else []
        texts[-1] += part
    return texts


def _on(row: AuditRow, key: str, ran: Mapping[str, Ran], asked: Mapping[str | None, AuditRow]) -> str:
    """On what the run was that a row names, as far as the row is about it, or the request that it decides on."""
    about = asked.get(str(row.row.get("extension")), row)
    return (about.texts.get("target") if key != "action" else "") or ran[str(row.row[key])][1]


def _lasts(row: AuditRow, ran: Mapping[str, Ran], asked: Mapping[str | None, AuditRow]) -> str:
    """` for 1 hour` of what was asked for, `, until 14:30` of more time that was decided as it was `asked` for."""
    if row.what == "run.requested":
        return ran[row.object][2] if row.object in ran else ""
    if row.what == "extension.requested" or (request := asked.get(str(row.row.get("extension")))) is None:
        return ""
    return f", until {utc_time(request.row['after'])}" if "after" in request.row else ", with no end"


def _said(row: AuditRow, ran: Mapping[str, str], lasts: str) -> str:
    """Who did what and why, with people, responders and runs as they are called; no name is an indicator; mrkdwn."""
    names = {
        value: readable_name(value) if VERSION.search(value) else plain_name(value)
        for values in row.row.values()
        for value in (values if isinstance(values, list) else [values])
        if isinstance(value, str) and (_LOGIN.fullmatch(value) or VERSION.search(value))
    }
    named = "|".join(map(re.escape, names)) or "(?!)"
    did = _did(row, ran, lasts)
    did = called(did) if row.what.endswith(".refused") else did  # a sentence of core's
    parts = re.split(rf"(?<![^\s(\"])({named})(?![^\s,;:)])", did)
    limit = ROW_CHARS + 2 * sum(len(ran[run]) for key in RUNS if (run := str(row.row.get(key))) in ran)
    said = foreign("".join(names.get(part) or defang_indicators(part) for part in parts), limit)
    return in_own_time(f"*{person_name(row.sentence[: len(row.by)])}* {said}")


def _did(row: AuditRow, ran: Mapping[str, str], lasts: str) -> str:
    """The rest of its sentence without the account of the bot, and with what a run was instead of its id and target."""
    of, did = row.row, row.sentence[len(row.by) :].replace(f" (through {row.row.get('through')})", "", 1).strip()
    run_id, what = str(of.get("object")), f"{of.get('responder')} on {of.get('on')}"
    if run_id in ran:
        did = did.replace(f"{run_id}, {what}", what, 1).replace(f" as {run_id}", "", 1)
        did = did.replace(what, ran[run_id] + lasts, 1)
    for other in (str(of.get(key)) for key in ("action", "undoes", "object") if of.get(key) in ran):
        did = ran[other].join(re.split(rf"{other}(?!\d)", did, maxsplit=1))
    ended = rf': "(?:Denied|Cancelled) by {re.escape(row.by)}("$|: )'
    return re.sub(ended, lambda end: "" if end[1] == '"' else ': "', did)


FEATURE = Feature(
    commands={"audit": Command(Entry(on_audit_command, modal_title="Audit"), "audit ~id", "who decided what about it")}
)
