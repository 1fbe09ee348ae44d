"""Functions of SQLite's that our statements use on PostgreSQL too; made by each schema's first migration."""

FUNCTIONS = r"""
-- The members of a bound list.
CREATE FUNCTION json_each(list TEXT) RETURNS TABLE (value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT * FROM json_array_elements_text(CAST(replace(list, '\u0000', '\ufffd') AS JSON)) $$;
CREATE FUNCTION min(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN least(one, other) END $$;
CREATE FUNCTION max(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN greatest(one, other) END $$;
"""
