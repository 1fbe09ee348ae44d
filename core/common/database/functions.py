"""Functions that let PostgreSQL take SQL as SQLite does; made by each schema's first migration, and never changed."""

FUNCTIONS = r"""
-- SQLite's functions for JSON. A document here is never damaged: only core writes it.
CREATE FUNCTION json_valid(doc TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT doc IS NOT NULL $$;
-- To read its values; a NUL, which PostgreSQL has not, is read as U+FFFD.
CREATE FUNCTION as_json(doc TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CAST(replace(doc, '\u0000', '\ufffd') AS JSON) $$;
CREATE FUNCTION json_extract(doc TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  -- Not as_json: in an index, no other function of this schema is found.
  AS $$ SELECT CAST(replace(doc, '\u0000', '\ufffd') AS JSON) #>> string_to_array(substr(path, 3), '.') $$;
CREATE FUNCTION json_type(doc TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT json_typeof(as_json(doc) #> string_to_array(substr(path, 3), '.')) $$;
CREATE FUNCTION json_each(doc TEXT) RETURNS TABLE (key TEXT, value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT key, value
      FROM json_each_text(CASE WHEN json_typeof(as_json(doc)) = 'object' THEN as_json(doc) END)
    UNION ALL
    SELECT CAST(place - 1 AS TEXT), value
      FROM json_array_elements_text(CASE WHEN json_typeof(as_json(doc)) = 'array' THEN as_json(doc) END)
        WITH ORDINALITY AS members (value, place)
  $$;

-- Aggregates and functions of two values.
CREATE FUNCTION joined(before TEXT, value TEXT, separator TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT coalesce(before || separator || value, value) $$;
CREATE AGGREGATE group_concat(TEXT, TEXT) (sfunc = joined, stype = TEXT);
CREATE FUNCTION min(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN least(one, other) END $$;
CREATE FUNCTION max(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN greatest(one, other) END $$;
"""
