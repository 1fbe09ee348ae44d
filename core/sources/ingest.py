"""What sources send becomes alerts (core/docs/sources.md)."""

import asyncio
import base64
import hashlib
import hmac
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.authorization import Caller, current_caller, full_login
from core.common.clock import HOUR_MS, MINUTE_MS, Clock, boot_ms, duration_ms, time_text
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import AuthenticationError, ResponderBotError
from core.common.tasks import repeat
from core.models import AlertInput, ApiModel, ArtifactsInput
from core.settings import Rate, ResponderSection, SourceSection
from core.sources import preset, repeats
from core.sources.mapping import BodyMap, Reading, Unreadable
from core.store import actions as stored_actions
from core.store import sources as stored

# --- who may send: a key, or a signature over body and time; and how often --------------------------------------------


SIGNATURE_HEADER = "x-signature"
TIME_HEADER = "x-timestamp"
CLOCKS_DIFFER_MS = 5 * MINUTE_MS


@dataclass(frozen=True)
class Signature:
    """The headers of a signed request: `X-Signature` is the HMAC-SHA256 of `X-Timestamp`, `:` and the body."""

    digest: str
    timestamp: str

    @staticmethod
    def of(headers: Mapping[str, str], now: int) -> "Signature":
        """Raises ResponderBotError("authentication") if it is not of now, give or take CLOCKS_DIFFER_MS."""
        digest, timestamp = headers.get(SIGNATURE_HEADER, ""), headers.get(TIME_HEADER, "")
        is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12
        if not is_number or abs(int(timestamp) * 1000 - now) > CLOCKS_DIFFER_MS:
            minutes = CLOCKS_DIFFER_MS // MINUTE_MS
            sentence = f"X-Timestamp must be the time now in seconds since 1970, to within {minutes} min."
            raise ResponderBotError("authentication", sentence)
        return Signature(digest.removeprefix("sha256=").lower(), timestamp)

    def is_by(self, key: str, content: bytes) -> bool:
        """Whether who made it knows this key."""
        signed = hmac.new(key.encode(), f"{self.timestamp}:".encode() + content, hashlib.sha256).hexdigest()
        return hmac.compare_digest(signed.encode(), self.digest.encode("utf-8", "replace"))


class Limiter:
    """Holds a source to its rate; after a pause it may send as many at once."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._free, self._at = rate, float(rate.runs), time.monotonic()

    def take(self, name: str) -> None:
        """Raises ResponderBotError("rate_limited")."""
        now, per_s = time.monotonic(), self._rate.runs * 1000 / self._rate.ms
        self._free = min(self._rate.runs, self._free + (now - self._at) * per_s)
        self._at = now
        if self._free < 1:
            wait_s = int((1 - self._free) / per_s) + 1
            sentence = (
                f"{name} sends more than {self._rate.text}; send again in {wait_s} s, several alerts in one body."
            )
            raise ResponderBotError("rate_limited", sentence, details={"retryAfter": wait_s})
        self._free -= 1


# --- who may send to a source: a key, or a signature over body and time; and how often --------------------------------


# --- what it sends ----------------------------------------------------------------------------------------------------


SMALL_AT_ONCE, LARGE_AT_ONCE = 16, 2  # bodies: what people do queues behind no more of them
LARGE_BYTES = 16_384  # reading it would block the event loop
TICK_S = 1.0
SHOWN_EVERY_MS = 3_000  # on a card
SHOWN_AT_ONCE = 200
SENDERS_RETRY_MS = 15 * MINUTE_MS  # after a pause of core's own, most have sent again by then
MIN_HMAC_KEY_CHARS = 16


class Received(ApiModel):
    """What became of a body."""

    created: int = 0
    repeated: int = 0
    """Alerts that were there already, and are counted."""
    resolved: int = 0
    """Alerts that are over, as the sender says."""
    skipped: int = 0
    """What is no alert, as the map says."""
    unreadable: int = 0
    is_duplicate: bool = False
    """The same request was carried out before; this one changed nothing."""


@dataclass(frozen=True)
class Source:
    name: str
    section: SourceSection
    map: BodyMap
    limiter: Limiter
    keeps_bodies: bool
    """Whether bodies stay with their alerts, as files."""
    is_email: bool

    @staticmethod
    def of(name: str, section: SourceSection, responders: Mapping[str, ResponderSection]) -> "Source":
        """Raises ResponderBotError("bad_request") if the map is wrong."""
        for_rules = {
            tag for responder in responders.values() if responder.only_on is not None for tag in responder.only_on.tags
        }
        trusted = {tag.casefold() for tag in section.trusted_tags}
        try:
            if any(len(key) < MIN_HMAC_KEY_CHARS for key in section.hmac_keys):
                raise ValueError(f"hmac_keys has one of under {MIN_HMAC_KEY_CHARS} characters")
            merged = preset.merged(section)
            body_map = BodyMap(
                merged,
                type=section.preset or "alert",
                source=name,
                tlp=section.tlp_at_least,
                withheld_tags=(tag for tag in for_rules if tag.casefold() not in trusted),
            )
        except ValueError as error:
            raise ResponderBotError("bad_request", f'[source."{name}"]: {error}; correct that.') from error
        keeps = bool(section.preset) and preset.load(section.preset).keep
        return Source(name, section, body_map, Limiter(Rate.parse(section.rate)), keeps, merged.format == "email")


@dataclass(frozen=True)
class Sender:
    """Who sends a body, as far as its headers say."""

    source: Source
    login: str
    signature: Signature | None


class Sources:
    """The sources of the settings: takes their bodies, and notices when one says nothing any more."""

    def __init__(
        self,
        sections: Mapping[str, SourceSection],
        responders: Mapping[str, ResponderSection],
        database: Database,
        clock: Clock,
        user_domain: str,
        *,
        uptime: Clock = boot_ms,
    ) -> None:
        """Raises ResponderBotError("bad_request") if a map is wrong."""
        self._sources = {name: Source.of(name, section, responders) for name, section in sections.items()}
        self._database = database
        self._clock = clock
        self._user_domain = user_domain
        self._uptime = uptime
        self._opened_at = uptime()
        self._last_signs: dict[str, tuple[int, int, int]] = {}  # by source: its time, that by the uptime, the last look
        self._small, self._large = asyncio.Semaphore(SMALL_AT_ONCE), asyncio.Semaphore(LARGE_AT_ONCE)

    async def open(self) -> None:
        """Begin to count what comes."""
        if self._sources:
            now = self._clock()
            await self._database.transaction(lambda tx: stored.add_missing(tx, self._sources, now))

    async def run(self) -> None:
        """Look for what should have come until cancelled."""
        if self._sources:
            await repeat("silence of sources", TICK_S, self.tick)

    def sender(self, name: str, caller: Caller | None, headers: Mapping[str, str]) -> Sender:
        """Who sends to this source: its own user with a key (`caller`), or whoever can sign.

        Raises ResponderBotError: forbidden, not_found, authentication, rate_limited.
        """
        login, source, signature = full_login(name, self._user_domain), self._sources.get(name), None
        if caller is None:
            if source is None or not source.section.hmac_keys:
                raise AuthenticationError("signature")
            signature = Signature.of(headers, self._clock())
        elif caller.profile != "source" or caller.login != login:
            sentence = f"Only the user {login}, with the profile source, may send to {name}; use that user's key."
            raise ResponderBotError("forbidden", sentence)
        if source is None:
            sentence = f'The settings have no [source."{name}"]; `responder-bot source add {name}` prints one.'
            raise ResponderBotError("not_found", sentence)
        if signature is None:  # else who can't sign could use up the rate
            source.limiter.take(name)
        return Sender(source, login, signature)

    async def receive(self, sender: Sender, content: bytes, idempotency_key: str = "") -> Received:
        """Store what a body holds, in one transaction; nothing if it was stored under the same key before.

        Raises ResponderBotError: authentication, rate_limited, key_reused.
        """
        source, login, now = sender.source, sender.login, self._clock()
        if sender.signature is not None:
            if not any(sender.signature.is_by(key, content) for key in source.section.hmac_keys):
                raise AuthenticationError("signature")
            source.limiter.take(source.name)
            idempotency_key = f"signature {sender.signature.digest}"  # a replay changes nothing
        is_large = len(content) >= LARGE_BYTES

        def work(tx: Transaction) -> Received:
            caller = current_caller(tx, login, login)
            if caller is None or caller.profile != "source":
                raise AuthenticationError("disabled")
            if idempotency_key:
                text = content.decode("latin-1")
                if stored_actions.remembered(tx, login, idempotency_key, text, now) is not None:
                    return Received(is_duplicate=True)
                stored_actions.remember(tx, login, idempotency_key, text, 0, now)
            return _store(tx, source, reading, content, login, now)

        async with self._large if is_large else self._small:
            reading = await asyncio.to_thread(source.map.read, content) if is_large else source.map.read(content)
            return await self._database.transaction(work)

    async def problems(self) -> list[str]:
        """What is wrong with sources: no user, or nothing comes any more."""

        def read(reads: Reads) -> list[str]:
            found = list[str]()
            rows = {row["name"]: row for row in stored.list_all(reads)}
            for name, source in self._sources.items():
                caller = current_caller(reads, login := full_login(name, self._user_domain), login)
                if caller is None or caller.profile != "source":
                    found.append(f"{name} has no user; `responder-bot user add {name} --profile source` makes it.")
                elif self._is_silent(source, rows.get(name)):
                    found.append(f"{name} has sent nothing {_since(rows[name])}; see whether its forwarder runs.")
            return found

        return await self._database.read(read)

    async def tick(self) -> None:
        """Tell of repeats, and of sources that say nothing any more."""
        now = self._clock()

        def read(reads: Reads) -> bool:
            silent = list(filter(is_newly_silent, stored.list_all(reads)))
            return bool(silent) or stored.has_repeated(reads, now - SHOWN_EVERY_MS)

        def is_newly_silent(row: Row) -> bool:
            source = self._sources.get(row["name"])
            return source is not None and self._is_silent(source, row) and row["silent_alert"] is None

        def work(tx: Transaction) -> None:
            repeats.show(tx, now, waited_ms=SHOWN_EVERY_MS, limit=SHOWN_AT_ONCE)
            for row in filter(is_newly_silent, stored.list_all(tx)):
                source, login = self._sources[row["name"]], full_login(row["name"], self._user_domain)
                _, number = repeats.receive(tx, _silent(source, row), login, now, reopen_after_ms=0)
                stored.set_silent_alert(tx, row["name"], number)

        if await self._database.read(read):
            await self._database.transaction(work)

    def _is_silent(self, source: Source, row: Row | None) -> bool:
        """Whether it has said nothing for too long, and not only because no core ran, or because a clock was set."""
        if row is None or source.section.expect_every is None:
            return False
        expected_ms, uptime = duration_ms(source.section.expect_every), self._uptime()
        spoke_at, since, looked_at = self._last_signs.get(row["name"], (None, 0, 0))
        if spoke_at != (at := row["last_at"] or row["since"]):
            passed_ms = max(0, self._clock() - at)
            since = uptime - (passed_ms if spoke_at is None else min(passed_ms, uptime - looked_at))
        self._last_signs[row["name"]] = at, since, uptime
        return uptime - since > expected_ms and uptime - self._opened_at > min(expected_ms, SENDERS_RETRY_MS)


def _store(tx: Transaction, source: Source, reading: Reading, content: bytes, login: str, now: int) -> Received:
    counts: Counter[str] = Counter(skipped=reading.skipped)
    reopen_after_ms = duration_ms(source.section.reopen_after)
    for incoming in reading.incoming:
        if incoming.is_over(now) and (resolved := repeats.resolve(tx, incoming.request, login, now)):
            counts[resolved] += 1
            continue
        if incoming.is_resolved:
            counts["skipped"] += 1
            continue
        request = incoming.request
        if source.keeps_bodies:
            request = request.model_copy(update={"artifacts": [*request.artifacts, _file(source, content)]})
        outcome, number = repeats.receive(tx, request, login, now, reopen_after_ms=reopen_after_ms)
        counts[outcome] += 1
        if incoming.is_over(now):  # it came late, or this clock is ahead
            repeats.resolve_number(tx, number, login, now)
    for reason, times in Counter(part.reason for part in reading.unreadable).items():
        first = next(part for part in reading.unreadable if part.reason == reason)
        alert = _unreadable(source, first, now)
        earlier = alert.model_copy(update={"source_ref": _hourly(first, now - HOUR_MS)})
        if repeats.was_made_after(tx, earlier, now - HOUR_MS):
            alert = earlier
        repeats.receive(tx, alert, login, now, reopen_after_ms=reopen_after_ms, times=times)
        counts["unreadable"] += times
        tx.notes.append(("message_unreadable", {"source": source.name, "reason": reason, "messages": times}))
    if silent := stored.count(tx, source.name, now, counts):
        repeats.resolve_number(tx, silent, login, now)
    return Received(**counts)


def _hourly(unreadable: Unreadable, at: int) -> str:
    """A reference for each reason and hour."""
    return f"{unreadable.reason} {datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H}"


def _unreadable(source: Source, unreadable: Unreadable, now: int) -> AlertInput:
    """The alert for what no map can read."""
    hint = (
        f"The message is kept as a file: `responder-bot source test {source.name} FILE` shows what the map makes of it."
    )
    return AlertInput(
        type="unreadable",
        source=source.name,
        source_ref=_hourly(unreadable, now),
        title=f"Unreadable message from {source.name}",
        description=f"{unreadable.sentence}\n\n{hint}",
        tlp=source.section.tlp_at_least,
        artifacts=[_file(source, unreadable.content)],
    )


def _file(source: Source, content: bytes) -> ArtifactsInput:
    name, kind = ("message.eml", "message/rfc822") if source.is_email else ("message.json", "application/json")
    text = f"{name};{kind};{base64.b64encode(content).decode()}"
    return ArtifactsInput(data_type="file", data=[text], message="as it was sent", tlp=source.section.tlp_at_least)


def _silent(source: Source, row: Row) -> AlertInput:
    """The alert for a source that says nothing."""
    return AlertInput(
        type="silence",
        source=source.name,
        source_ref=f"silent {_since(row)}",
        title=f"Nothing comes from {source.name}",
        description=(
            f"{source.name} has sent nothing {_since(row)}, and the settings expect something every"
            f" {source.section.expect_every}. See whether its forwarder runs, and whether its key still works"
            " (`responder-bot source list`). This alert closes once something comes."
        ),
        severity=3,
        tlp=source.section.tlp_at_least,
    )


def _since(row: Row) -> str:
    words = "since" if row["last_at"] else "at all, since it is in the settings:"
    return f"{words} {time_text(row['last_at'] or row['since'])}"
