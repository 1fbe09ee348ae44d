"""Core's tables on PostgreSQL, as numbered steps of plain SQL: each runs once and is never changed after it has landed.

The first one makes the tables as SQLite's migrations have left them (schema.py), and the functions and types that let
both databases take one text of SQL. Texts are compared by code point whatever the database's collation is.
"""

from core.common.database.functions import FUNCTIONS

_COMPARABLE = """
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

_TABLES = """
CREATE TABLE sequence (id BIGINT PRIMARY KEY, last BIGINT);
INSERT INTO sequence (id, last) VALUES (1, 0), (3, 0);

CREATE TABLE object (
  id BIGINT PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL, parent_id BIGINT, unique_key TEXT COLLATE "C",
  doc TEXT COLLATE "C" NOT NULL);
CREATE UNIQUE INDEX object_kind_unique_key ON object (kind, unique_key);
CREATE INDEX object_kind_id ON object (kind, id);
CREATE INDEX object_parent_id_kind_id ON object (parent_id, kind, id);
CREATE INDEX alert_case ON object ((CASE WHEN json_valid(doc) THEN json_extract(doc, '$.case') END))
  WHERE kind = 'alert' AND CASE WHEN json_valid(doc) THEN json_extract(doc, '$.case') END IS NOT NULL;

CREATE TABLE action (
  id BIGINT PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL, object_id BIGINT NOT NULL, root_id BIGINT,
  responder_name TEXT COLLATE "C", engine_name TEXT COLLATE "C", engine_responder_id TEXT COLLATE "C",
  status TEXT COLLATE "C" NOT NULL, created_by TEXT COLLATE "C" NOT NULL, acted_through TEXT COLLATE "C",
  created_at BIGINT NOT NULL, dispatched_at BIGINT, owner TEXT COLLATE "C", engine_job_id TEXT COLLATE "C",
  cancelled_by TEXT COLLATE "C", parameters TEXT COLLATE "C", approval_expires_at BIGINT,
  doc TEXT COLLATE "C" NOT NULL, whole_report TEXT COLLATE "C", whole_operations TEXT COLLATE "C",
  whole_parameters TEXT COLLATE "C", bulk_id BIGINT, target_key TEXT COLLATE "C", undoes BIGINT, undo_at BIGINT,
  host_id TEXT COLLATE "C");
CREATE INDEX action_object_id_id ON action (object_id, id);
CREATE INDEX action_created_by_id ON action (created_by, id);
CREATE INDEX action_status_responder_name ON action (status, responder_name);
CREATE INDEX action_open ON action (owner, id) WHERE status IN ('Waiting', 'InProgress');
CREATE INDEX action_unclaimed ON action (engine_name, id)
  WHERE status IN ('Waiting', 'InProgress') AND owner IS NULL AND approval_expires_at IS NULL;
CREATE INDEX action_on_artifact ON action (root_id, id) WHERE kind = 'case_artifact';
CREATE INDEX action_in_bulk ON action (bulk_id, status) WHERE bulk_id IS NOT NULL;
CREATE INDEX action_dispatched ON action (responder_name, dispatched_at) WHERE dispatched_at IS NOT NULL;
CREATE INDEX action_undo_at ON action (undo_at) WHERE undo_at IS NOT NULL;

CREATE TABLE idempotency (
  login TEXT COLLATE "C", key TEXT COLLATE "C", body TEXT COLLATE "C", action_id BIGINT, created_at BIGINT,
  PRIMARY KEY (login, key));
CREATE INDEX idempotency_created_at ON idempotency (created_at);

CREATE TABLE event (
  seq BIGINT PRIMARY KEY, at BIGINT NOT NULL, type TEXT COLLATE "C" NOT NULL, object_type TEXT COLLATE "C" NOT NULL,
  object_id BIGINT NOT NULL, root_id BIGINT NOT NULL, "user" TEXT COLLATE "C" NOT NULL);
-- The newest number ever given, whether or not its event is still there. As writers are one after the other, a number
-- that is rolled back is given again.
CREATE VIEW last_event AS
  SELECT greatest((SELECT max(seq) FROM event), (SELECT last FROM sequence WHERE id = 3)) AS seq;
CREATE FUNCTION next_event() RETURNS BIGINT LANGUAGE plpgsql
  AS $$ BEGIN RETURN (SELECT seq + 1 FROM last_event); END $$;
ALTER TABLE event ALTER COLUMN seq SET DEFAULT next_event();
CREATE FUNCTION keep_last_event() RETURNS TRIGGER LANGUAGE plpgsql
  AS $$ BEGIN
    UPDATE sequence SET last = greatest(last, (SELECT max(seq) FROM deleted)) WHERE id = 3;
    RETURN NULL;
  END $$;
CREATE TRIGGER keep_last_event AFTER DELETE ON event REFERENCING OLD TABLE AS deleted
  FOR EACH STATEMENT EXECUTE FUNCTION keep_last_event();

CREATE TABLE "user" (
  login TEXT COLLATE "C" PRIMARY KEY, profile TEXT COLLATE "C" NOT NULL, clearance BIGINT NOT NULL,
  key_hash TEXT COLLATE "C", disabled BIGINT, created_at BIGINT);
CREATE UNIQUE INDEX user_key_hash ON "user" (key_hash);
CREATE TABLE slack_link (
  team TEXT COLLATE "C", slack_user TEXT COLLATE "C", login TEXT COLLATE "C", PRIMARY KEY (team, slack_user));
CREATE INDEX slack_link_login ON slack_link (login);
CREATE TABLE access_request (
  id BIGINT PRIMARY KEY, team TEXT COLLATE "C" NOT NULL, slack_user TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL, login TEXT COLLATE "C" NOT NULL, status TEXT COLLATE "C" NOT NULL,
  profile TEXT COLLATE "C", message TEXT COLLATE "C", created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
  decided_by TEXT COLLATE "C", decided_at BIGINT);
CREATE TABLE group_member (name TEXT COLLATE "C", login TEXT COLLATE "C", PRIMARY KEY (name, login));

CREATE TABLE catalogue (engine TEXT COLLATE "C" PRIMARY KEY, doc TEXT COLLATE "C", at BIGINT);
CREATE TABLE owner (
  id TEXT COLLATE "C" PRIMARY KEY, lease_until BIGINT NOT NULL, host TEXT COLLATE "C", host_id TEXT COLLATE "C",
  version TEXT COLLATE "C", started_at BIGINT, beat BIGINT NOT NULL DEFAULT 0, draining BIGINT NOT NULL DEFAULT 0,
  stopped BIGINT NOT NULL DEFAULT 0);
CREATE TABLE host_catalogue (
  host_id TEXT COLLATE "C", engine TEXT COLLATE "C", host TEXT COLLATE "C" NOT NULL, up BIGINT NOT NULL,
  capacity BIGINT, doc TEXT COLLATE "C" NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (host_id, engine));
CREATE TABLE lost_host (
  host_id TEXT COLLATE "C" PRIMARY KEY, host TEXT COLLATE "C" NOT NULL, at BIGINT NOT NULL, ended BIGINT NOT NULL);
CREATE TABLE ending (
  action_id BIGINT PRIMARY KEY, at BIGINT NOT NULL, report TEXT COLLATE "C" NOT NULL,
  outcomes TEXT COLLATE "C" NOT NULL);
CREATE TABLE alert_artifact (id BIGINT PRIMARY KEY, alert_id BIGINT NOT NULL, artifact_id BIGINT NOT NULL);
CREATE INDEX alert_artifact_artifact_id ON alert_artifact (artifact_id);
CREATE TABLE bulk (
  id BIGINT PRIMARY KEY, created_by TEXT COLLATE "C" NOT NULL, created_at BIGINT NOT NULL,
  responder_name TEXT COLLATE "C", request TEXT COLLATE "C" NOT NULL, targets TEXT COLLATE "C" NOT NULL,
  total BIGINT NOT NULL, refused BIGINT NOT NULL, retried_by BIGINT);
CREATE TABLE failure (action_id BIGINT PRIMARY KEY, responder_name TEXT COLLATE "C", at BIGINT);
CREATE INDEX failure_responder_name_at ON failure (responder_name, at);
CREATE TABLE pause (
  id BIGINT PRIMARY KEY, responder_name TEXT COLLATE "C" NOT NULL, opened_at BIGINT NOT NULL, failures BIGINT NOT NULL,
  within_minutes BIGINT NOT NULL, action_id BIGINT NOT NULL, closed_at BIGINT, closed_by TEXT COLLATE "C");
CREATE UNIQUE INDEX pause_open ON pause (responder_name) WHERE closed_at IS NULL;

-- What a database is, and how it became what it is (core/docs/storage.md#identity-of-a-database).
CREATE TABLE identity (id TEXT COLLATE "C" PRIMARY KEY);
INSERT INTO identity (id) VALUES (replace(CAST(gen_random_uuid() AS TEXT), '-', ''));
CREATE TABLE restore (
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, at BIGINT NOT NULL, made_at BIGINT NOT NULL,
  last_event BIGINT NOT NULL, next_event BIGINT NOT NULL);
CREATE TABLE backup (made_at BIGINT NOT NULL);
"""

STEPS = (FUNCTIONS + _COMPARABLE + _TABLES,)
