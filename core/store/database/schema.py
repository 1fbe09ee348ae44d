"""Core's tables on SQLite and on PostgreSQL.

The first migration makes those of the tag v0.2.0; each change after it is a migration of its own. Names and order of
columns are the same on both; times are in ms since 1970, ids are the digits of `~12`.
"""

from collections.abc import Sequence

from sqlite_utils import Database

from core.common.database.opening import FUNCTIONS
from core.common.database.schema import FIELD_FUNCTION, Migration, Opening, on_postgresql, on_sqlite
from core.common.database.sqlite.database import apply
from core.common.leases import COLUMNS

_TABLES = """
-- The last number given: id (objects and actions share one sequence), event, due, blocklist (changes of a list), and
-- probe, which health counts up.
CREATE TABLE sequence (name TEXT PRIMARY KEY, last INTEGER NOT NULL);
INSERT INTO sequence (name, last) VALUES ('id', 0), ('event', 0), ('due', 0), ('probe', 0),
  ('blocklist', 0);

-- doc: the response JSON, ready to send. unique_key: unique for each kind, such as an alert's reference or a template's
-- name.
-- Generated columns are what searches ask for most (fields.py), and for retention closed_at: when an alert or a case
-- that is closed was last changed; null while it is open.
CREATE TABLE object (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, parent_id INTEGER, unique_key TEXT, doc TEXT NOT NULL,
  case_id TEXT GENERATED ALWAYS AS ({text:case}) STORED,
  status TEXT GENERATED ALWAYS AS ({text:status}) STORED,
  assignee TEXT GENERATED ALWAYS AS (coalesce({text:assignee}, {text:owner})) STORED,
  source TEXT GENERATED ALWAYS AS ({text:source}) STORED,
  source_ref TEXT GENERATED ALWAYS AS ({text:sourceRef}) STORED,
  severity INTEGER GENERATED ALWAYS AS ({number:severity}) STORED,
  tlp INTEGER GENERATED ALWAYS AS ({number:tlp}) STORED,
  date INTEGER GENERATED ALWAYS AS ({number:date}) STORED,
  created_at INTEGER GENERATED ALWAYS AS ({number:createdAt}) STORED,
  closed_at INTEGER GENERATED ALWAYS AS (
    CASE WHEN kind IN ('alert', 'case')
      AND {text:status} IN ('Ignored', 'Imported', 'Resolved', 'Duplicate', 'Deleted')
      THEN coalesce({number:updatedAt}, {number:createdAt}) END) STORED);
CREATE UNIQUE INDEX object_unique_key ON object (kind, unique_key);
CREATE INDEX object_kind ON object (kind, id);
CREATE INDEX object_parent ON object (parent_id, kind, id);
CREATE INDEX object_case ON object (case_id, id) WHERE case_id IS NOT NULL;
CREATE INDEX object_status ON object (kind, status, id);
CREATE INDEX object_assignee ON object (kind, assignee, id) WHERE assignee IS NOT NULL;
CREATE INDEX object_open ON object (coalesce(assignee, ''), severity, id, tlp)
  WHERE kind = 'alert' AND status IN ('New', 'Updated');
CREATE INDEX object_source_ref ON object (kind, source_ref, id) WHERE source_ref IS NOT NULL;
CREATE INDEX object_source ON object (kind, source, id) WHERE source IS NOT NULL;
CREATE INDEX object_severity ON object (kind, severity, id) WHERE severity IS NOT NULL;
CREATE INDEX object_date ON object (kind, date, id) WHERE date IS NOT NULL;
CREATE INDEX object_created_at ON object (kind, created_at, id);
CREATE INDEX object_closed ON object (kind, closed_at, id) WHERE closed_at IS NOT NULL AND case_id IS NULL;
CREATE INDEX object_in_case_closed ON object (case_id, closed_at) WHERE case_id IS NOT NULL;
-- Artifacts are stored in their alert, and once that is in a case as objects of the case too. id: the artifact's id in
-- the alert. artifact_id: its id now, which is another one if the case had an equal artifact.
CREATE TABLE alert_artifact (id INTEGER PRIMARY KEY, alert_id INTEGER NOT NULL, artifact_id INTEGER NOT NULL);
CREATE INDEX alert_artifact_id ON alert_artifact (artifact_id, alert_id);
CREATE INDEX alert_artifact_alert ON alert_artifact (alert_id);

-- Which alerts and artifacts have a file, by its SHA-256; and files that may be in none any more.
CREATE TABLE file_reference (file_id TEXT, object_id INTEGER, PRIMARY KEY (file_id, object_id));
CREATE INDEX file_reference_object ON file_reference (object_id);
CREATE TABLE dropped_file (file_id TEXT PRIMARY KEY);

CREATE TABLE alert_tag (tag TEXT, alert_id INTEGER, PRIMARY KEY (tag, alert_id)) WITHOUT ROWID;
CREATE INDEX alert_tag_alert ON alert_tag (alert_id);

-- The words of alerts (texts.py). "until": the next level.
CREATE TABLE object_text (
  id INTEGER PRIMARY KEY, object_id INTEGER NOT NULL, level INTEGER NOT NULL, "until" INTEGER NOT NULL,
  words TEXT NOT NULL);
CREATE INDEX object_text_object ON object_text (object_id);

-- doc: the response JSON; whole_report, whole_operations, whole_parameters: only if those in it were truncated.
-- owner: the core that follows it. host_id: the host that runs its program; null while there is none, and on a remote
-- engine. parameters: with their secrets until it has ended. secret_names: a JSON list of those that hold one.
-- awaits_approval: 1 while it does. undoes: the action that this one undoes. target: what it was asked to run on
-- (responders/target.py), while it is open or has left something in force. run_id: its number and a random one, by
-- which engines find its job. request_id: of the request that started it, for the log. report_at: when it ended; null
-- while it is open, and once retention has removed its report. kind: of its object.
CREATE TABLE action (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, object_id INTEGER NOT NULL, root_id INTEGER, responder_name TEXT,
  engine_name TEXT, engine_responder_id TEXT, status TEXT NOT NULL, created_by TEXT NOT NULL, acted_through TEXT,
  created_at INTEGER NOT NULL, dispatched_at INTEGER, owner TEXT, engine_job_id TEXT, cancelled_by TEXT,
  parameters TEXT, secret_names TEXT NOT NULL DEFAULT '[]', awaits_approval INTEGER NOT NULL DEFAULT 0,
  doc TEXT NOT NULL,
  whole_report TEXT, whole_operations TEXT, whole_parameters TEXT, bulk_id INTEGER, undoes INTEGER,
  host_id TEXT, target TEXT, run_id TEXT NOT NULL, request_id TEXT NOT NULL DEFAULT '',
  report_at INTEGER,
  outcome TEXT GENERATED ALWAYS AS ({text:outcome}) STORED,
  ended_at INTEGER GENERATED ALWAYS AS ({number:endDate}) STORED,
  undo_status TEXT GENERATED ALWAYS AS ({text:undo.status}) STORED);
CREATE INDEX action_object ON action (object_id, id);
CREATE INDEX action_created_by ON action (created_by, id);
CREATE INDEX action_status ON action (status, responder_name);
CREATE INDEX action_open_by ON action (created_by, id) WHERE status IN ('Waiting', 'InProgress');
CREATE INDEX action_failed ON action (ended_at, id) WHERE outcome IN ('failed', 'expired');
CREATE INDEX action_failed_by ON action (created_by, ended_at, id) WHERE outcome IN ('failed', 'expired');
CREATE INDEX action_open ON action (owner, id) WHERE status IN ('Waiting', 'InProgress');
CREATE INDEX action_unclaimed ON action (engine_name, id)
  WHERE status IN ('Waiting', 'InProgress') AND owner IS NULL AND awaits_approval = 0;
CREATE INDEX action_on_artifact ON action (root_id, id) WHERE kind = 'case_artifact';
CREATE INDEX action_in_bulk ON action (bulk_id, status) WHERE bulk_id IS NOT NULL;
CREATE INDEX action_dispatched ON action (responder_name, dispatched_at) WHERE dispatched_at IS NOT NULL;
CREATE INDEX action_root ON action (root_id, created_at);
CREATE INDEX action_report_at ON action (report_at, id) WHERE report_at IS NOT NULL;
CREATE INDEX action_unfinished ON action (root_id) WHERE status IN ('Waiting', 'InProgress');

-- Approvals of runs until these end, and of later ends while they wait. id: the run, or the extension of action_id.
-- is_waiting: 0 once a run has all that it needs. ends_at: the later end; null for none, and for a run. votes: as JSON.
CREATE TABLE approval (
  id INTEGER PRIMARY KEY, action_id INTEGER NOT NULL, asked_by TEXT NOT NULL, asked_at INTEGER NOT NULL,
  needed INTEGER NOT NULL, expires_at INTEGER NOT NULL, is_waiting INTEGER NOT NULL, ends_at INTEGER,
  votes TEXT NOT NULL);
CREATE UNIQUE INDEX approval_action ON approval (action_id);
CREATE INDEX approval_waiting ON approval (action_id) WHERE is_waiting = 1;

-- What core does at a time: of a subject (id) of a kind. number: the higher, the later it was put. wait: from then
-- until `at`. tries: how often it was refused. is_damaged: 1 for what is set aside, as its record can't be read.
CREATE TABLE due (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id INTEGER NOT NULL, at INTEGER NOT NULL, wait INTEGER NOT NULL,
  tries INTEGER NOT NULL, is_damaged INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX due_subject ON due (kind, id);
CREATE INDEX due_damaged ON due (number) WHERE is_damaged = 1;

-- What came from each source ([source."NAME"] of the settings). since: when it was first seen in the settings.
-- silent_alert: the alert that says that nothing comes any more.
CREATE TABLE source (
  name TEXT PRIMARY KEY, since INTEGER NOT NULL, last_at INTEGER, created INTEGER NOT NULL DEFAULT 0,
  repeated INTEGER NOT NULL DEFAULT 0, resolved INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
  unreadable INTEGER NOT NULL DEFAULT 0, silent_alert INTEGER);
-- Alerts that were sent again and have no event of that yet. since: the first of those repeats.
CREATE TABLE repeated_alert (alert_id INTEGER PRIMARY KEY, login TEXT NOT NULL, since INTEGER NOT NULL);

-- For rates per target: what the artifacts that actions were on name, as hashes.
CREATE TABLE action_target (target TEXT, action_id INTEGER, PRIMARY KEY (target, action_id));
CREATE INDEX action_target_action ON action_target (action_id);

-- What runs have left in force: a row for each target of a run; one for its object where it may act on anything in
-- that (target_kind: object). undone_by: the responder that undoes it, or its own where none does. target: in full, in
-- its canonical form; artifact: the one that names it. look, look_folded, look_label: how it looks, as hashes. state:
-- starting, in_force, unknown or ended. ends_at: null for no end; `due` says when core undoes it.
-- is_crossed: something undid the same while it was starting. undo_id: the newest run that undoes it; is_due: core
-- began that. message: why it was not undone. reason: why nobody knows whether it is in force, or who says it ended.
CREATE TABLE in_force (
  id INTEGER PRIMARY KEY, action_id INTEGER NOT NULL, responder TEXT NOT NULL, undone_by TEXT NOT NULL, artifact TEXT,
  target_kind TEXT NOT NULL, target TEXT NOT NULL, digest TEXT NOT NULL, look TEXT, look_folded TEXT, look_label TEXT,
  state TEXT NOT NULL, since INTEGER NOT NULL, ends_at INTEGER, is_crossed INTEGER NOT NULL DEFAULT 0,
  undo_status TEXT, undo_id INTEGER, is_due INTEGER NOT NULL DEFAULT 0, message TEXT, approved_until INTEGER,
  moved_by TEXT, moved_at INTEGER, moved_from INTEGER, ended_at INTEGER, ended_by TEXT, reason TEXT);
CREATE INDEX in_force_action ON in_force (action_id);
CREATE INDEX in_force_active ON in_force (id) WHERE state <> 'ended';
CREATE INDEX in_force_target ON in_force (digest, undone_by) WHERE state <> 'ended';
CREATE INDEX in_force_responder ON in_force (responder, target_kind) WHERE state <> 'ended';
CREATE INDEX in_force_look ON in_force (look) WHERE state <> 'ended';
CREATE INDEX in_force_look_folded ON in_force (look_folded) WHERE state <> 'ended';
CREATE INDEX in_force_look_label ON in_force (look_label) WHERE state <> 'ended';

-- Which actions are on a block list since which version of it, or were until `ended` and some reader has them.
CREATE TABLE blocklist_entry (
  action_id INTEGER, list TEXT, version INTEGER NOT NULL, ended INTEGER, PRIMARY KEY (action_id, list));
CREATE INDEX blocklist_entry_version ON blocklist_entry (list, version);
CREATE INDEX blocklist_entry_ended ON blocklist_entry (list, ended) WHERE ended IS NOT NULL;
-- Which version of a list each reader has read last.
CREATE TABLE blocklist_reader (
  login TEXT, list TEXT, version INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (login, list));
-- A row after a restore, until somebody has looked at what the lists will say. made_at: when the backup was made.
CREATE TABLE blocklist_hold (made_at INTEGER NOT NULL);

CREATE TABLE event (
  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, type TEXT NOT NULL, object_type TEXT NOT NULL,
  object_id INTEGER NOT NULL, root_id INTEGER NOT NULL, "user" TEXT NOT NULL, request_id TEXT NOT NULL DEFAULT '');

CREATE TABLE idempotency (
  login TEXT, key TEXT, digest TEXT, action_id INTEGER, created_at INTEGER, PRIMARY KEY (login, key));
CREATE INDEX idempotency_created_at ON idempotency (created_at);

-- Ends whose operations are applied in several commits: the report, and the outcomes so far. If the core dies, the next
-- one goes on after the last outcome.
CREATE TABLE ending (action_id INTEGER PRIMARY KEY, at INTEGER NOT NULL, report TEXT NOT NULL, outcomes TEXT NOT NULL);

-- request: what was asked for, without the targets and without secrets. targets: each with its action, or why there is
-- none. retried_by: the bulk that ran again what had failed.
CREATE TABLE bulk (
  id INTEGER PRIMARY KEY, created_by TEXT NOT NULL, created_at INTEGER NOT NULL, responder_name TEXT,
  request TEXT NOT NULL, targets TEXT NOT NULL, total INTEGER NOT NULL, refused INTEGER NOT NULL, retried_by INTEGER);
CREATE INDEX bulk_without_actions ON bulk (created_at) WHERE refused = total;


-- decided_at: when they last approved or denied something.
CREATE TABLE "user" (
  login TEXT PRIMARY KEY, profile TEXT NOT NULL, clearance INTEGER NOT NULL, disabled INTEGER, created_at INTEGER,
  decided_at INTEGER NOT NULL DEFAULT 0);
CREATE INDEX user_decided_at ON "user" (decided_at, login);
-- prefix: how the key begins, for the log. last_used_day: when that day began (UTC). clearance: null for the user's.
-- addresses: a JSON list of the networks that it may come from; empty for any. made_by: a JSON list of who made it, and
-- who made the keys with which they did.
CREATE TABLE api_key (
  hash TEXT PRIMARY KEY, login TEXT NOT NULL, name TEXT NOT NULL, prefix TEXT NOT NULL, created_at INTEGER NOT NULL,
  expires_at INTEGER, last_used_day INTEGER, clearance INTEGER, addresses TEXT NOT NULL,
  made_by TEXT NOT NULL DEFAULT '[]');
CREATE UNIQUE INDEX api_key_name ON api_key (login, name);
CREATE TABLE slack_link (team TEXT, slack_user TEXT, login TEXT, PRIMARY KEY (team, slack_user));
CREATE INDEX slack_link_login ON slack_link (login);
CREATE TABLE group_member (name TEXT, login TEXT, PRIMARY KEY (name, login));

-- Who decided what (core/docs/audit.md). doc: the row as canonical JSON; hash: its SHA-256, which the next row names.
CREATE TABLE audit (
  number INTEGER PRIMARY KEY, at INTEGER NOT NULL, what TEXT NOT NULL, object TEXT NOT NULL, root TEXT,
  hash TEXT NOT NULL, doc TEXT NOT NULL);
CREATE INDEX audit_at ON audit (at, number);
CREATE INDEX audit_object ON audit (object, number);
CREATE INDEX audit_root ON audit (root, number) WHERE root IS NOT NULL;
CREATE INDEX audit_erased ON audit (number) WHERE what = 'erased';
-- What rows name by a salted hash, as JSON, so that it can be erased.
CREATE TABLE audit_text (
  number INTEGER, name TEXT, salt TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (number, name));
-- The settings with which each host started last, as digests.
CREATE TABLE setting (host TEXT, name TEXT, digest TEXT NOT NULL, PRIMARY KEY (host, name));

-- The leases of cores (core/common/leases.py). One whose lease has expired, or that has no row, has lost its actions.
-- stopped: it has ended and left programs running.
CREATE TABLE owner (
  {lease}, host_id TEXT NOT NULL, draining INTEGER NOT NULL DEFAULT 0, stopped INTEGER NOT NULL DEFAULT 0);
-- The last catalogue of each engine of each host, so that lists are complete while an engine is down. capacity: null
-- for an engine without limit.
CREATE TABLE host_catalogue (
  host_id TEXT, engine TEXT, host TEXT NOT NULL, up INTEGER NOT NULL, capacity INTEGER, doc TEXT NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY (host_id, engine));
-- Hosts that were lost and have not come back. ended: how many actions ended with them.
CREATE TABLE lost_host (host_id TEXT PRIMARY KEY, host TEXT NOT NULL, at INTEGER NOT NULL, ended INTEGER NOT NULL);

-- What a database is, and how it became what it is (core/docs/storage.md#identity-of-a-database). made_at: when the
-- backup was made. Events between last_event and next_event were lost with what was replaced.
CREATE TABLE identity (id TEXT PRIMARY KEY);
CREATE TABLE backup (made_at INTEGER NOT NULL);
CREATE TABLE restore (
  at INTEGER NOT NULL, made_at INTEGER NOT NULL, last_event INTEGER NOT NULL, next_event INTEGER NOT NULL);
""".replace("{lease}", COLUMNS)

_SQLITE = """
CREATE VIRTUAL TABLE object_text_fts USING fts5(
  words, content='object_text', content_rowid='id', tokenize='unicode61 remove_diacritics 0');
CREATE TRIGGER object_text_inserted AFTER INSERT ON object_text
  BEGIN INSERT INTO object_text_fts (rowid, words) VALUES (new.id, new.words); END;
CREATE TRIGGER object_text_deleted AFTER DELETE ON object_text
  BEGIN INSERT INTO object_text_fts (object_text_fts, rowid, words) VALUES ('delete', old.id, old.words); END;
"""

_POSTGRESQL = """
ALTER TABLE object_text ADD COLUMN vector TSVECTOR GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED;
CREATE INDEX object_text_vector ON object_text USING gin (vector);
"""

_SEARCH = r"""
-- A NUL, which PostgreSQL has not, is read as U+FFFD.
CREATE FUNCTION as_json(doc TEXT) RETURNS JSONB LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CAST(replace(doc, '\u0000', '\ufffd') AS JSONB) $$;
-- A value of a document, compared as SQLite compares it: numbers and truth values, then texts.
CREATE TYPE comparable AS (class BIGINT, number NUMERIC, text TEXT COLLATE "C");
CREATE FUNCTION comparable(value JSONB) RETURNS comparable LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT CASE jsonb_typeof(value)
      WHEN 'string' THEN CAST(ROW(2, 0, value #>> '{}') AS comparable)
      WHEN 'number' THEN CAST(ROW(1, CAST(value AS NUMERIC), '') AS comparable)
      WHEN 'boolean' THEN CAST(ROW(1, CAST(CAST(value AS BOOLEAN) AS INTEGER), '') AS comparable)
      WHEN 'object' THEN CAST(ROW(2, 0, CAST(value AS TEXT)) AS comparable)
      WHEN 'array' THEN CAST(ROW(2, 0, CAST(value AS TEXT)) AS comparable)
    END
  $$;
CREATE FUNCTION comparable(value NUMERIC) RETURNS comparable LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CAST(ROW(1, value, '') AS comparable) $$;
CREATE FUNCTION comparable(value TEXT) RETURNS comparable LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CAST(ROW(2, 0, value) AS comparable) $$;
-- The text that LIKE sees, in small letters of ASCII.
CREATE FUNCTION folded(value comparable) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT lower(CASE (value).class WHEN 2 THEN (value).text ELSE CAST((value).number AS TEXT) END COLLATE "C") $$;
CREATE FUNCTION json_members(doc JSONB) RETURNS TABLE (value JSONB) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT * FROM jsonb_array_elements(CASE WHEN jsonb_typeof(doc) = 'array' THEN doc END) $$;
CREATE FUNCTION json_texts(doc JSONB) RETURNS TABLE (value JSONB) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT jsonb_path_query(doc, 'strict $.** ? (@.type() == "object").keyvalue() ? (@.key != "_type").value
      ? (@.type() == "string")')
    UNION ALL
    SELECT jsonb_path_query(doc, 'strict $.** ? (@.type() == "array")[*] ? (@.type() == "string")')
  $$;
"""

_APPROVED_BY = """
ALTER TABLE action ADD COLUMN approved_by TEXT;
UPDATE action SET approved_by = {text:approval.approvedBy} WHERE bulk_id IS NOT NULL;
"""

_REFUSED = """
CREATE TABLE bulk_refused (object_id TEXT, bulk_id INTEGER, PRIMARY KEY (object_id, bulk_id)) WITHOUT ROWID;
INSERT INTO bulk_refused SELECT DISTINCT {text:objectId}, id
  FROM (SELECT bulk.id, value AS doc FROM bulk, json_each(targets)) AS target WHERE {text:code} IS NOT NULL;
"""

_UNDONE = "CREATE INDEX in_force_ended ON in_force (digest) WHERE state = 'ended'"

_IDENTITY = "INSERT INTO identity (id) VALUES (replace(CAST(gen_random_uuid() AS TEXT), '-', ''))"

MIGRATIONS = (
    Migration(
        "make the tables",
        sqlite=[*on_sqlite(_TABLES + _SQLITE), "INSERT INTO identity (id) VALUES (lower(hex(randomblob(16))))"],
        postgresql=[FIELD_FUNCTION + FUNCTIONS + _SEARCH + on_postgresql(_TABLES) + _POSTGRESQL + _IDENTITY],
    ),
    # approved_by: who have approved it, as JSON; so that a bulk names them without the documents of its runs.
    Migration(
        "keep who approved the runs of a bulk",
        sqlite=on_sqlite(_APPROVED_BY),
        postgresql=[on_postgresql(_APPROVED_BY)],
    ),
    # bulk_refused: the objects that a bulk names and has no run on, so that its messages follow their levels.
    Migration("keep what a bulk was refused", sqlite=on_sqlite(_REFUSED), postgresql=[on_postgresql(_REFUSED)]),
    # So that who asks for the same again, for whatever alert, reads who undid it.
    Migration("find what was undone on a target", sqlite=[_UNDONE], postgresql=[_UNDONE]),
)


def migrate(db: Database, opening: Opening | None = None, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the migrations that are pending, on SQLite."""
    apply("core", migrations, db, opening or Opening())
