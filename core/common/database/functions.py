"""Functions that let PostgreSQL take SQL as SQLite does; made by each schema's first migration, and never changed."""

FUNCTIONS = """
-- SQLite's functions for JSON. A document here is never damaged: only core writes it.
CREATE FUNCTION json_valid(doc TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT doc IS NOT NULL $$;
CREATE FUNCTION json_extract(doc TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CAST(doc AS json) #>> string_to_array(substr(path, 3), '.') $$;
CREATE FUNCTION json_type(doc TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT json_typeof(CAST(doc AS json) #> string_to_array(substr(path, 3), '.')) $$;
CREATE FUNCTION json_each(doc TEXT) RETURNS TABLE (key TEXT, value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT key, value
      FROM json_each_text(CASE WHEN json_typeof(CAST(doc AS json)) = 'object' THEN CAST(doc AS json) END)
    UNION ALL
    SELECT CAST(place - 1 AS TEXT), value
      FROM json_array_elements_text(CASE WHEN json_typeof(CAST(doc AS json)) = 'array' THEN CAST(doc AS json) END)
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
