"""The database that core and bot keep their state in, as its users see it."""

from core.common.database.base import Database, Params, Reads, Row, Search, Transaction

__all__ = ["Database", "Params", "Reads", "Row", "Search", "Transaction"]
