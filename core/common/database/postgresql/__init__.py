"""The implementation of `Database` for PostgreSQL."""

from core.common.database.postgresql.database import PostgresqlDatabase
from core.common.database.postgresql.server import forget
