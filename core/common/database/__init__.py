"""The database that core and bot keep their state in, as its users see it."""

from core.common.database.base import Database, Dialect, Params, Reads, Row, Search, Transaction
