"""The implementation of `Database` for PostgreSQL."""

from core.common.database.postgresql.database import PostgresqlDatabase

__all__ = ["PostgresqlDatabase"]
