"""The PostgreSQL of a run: finds, creates, starts, queries and stops it. Knows nothing of messages."""

from waylab.testbed.postgres.connection import Connection
from waylab.testbed.postgres.programs import PostgresPrograms, find_postgres
from waylab.testbed.postgres.server import PostgresServer

__all__ = ["Connection", "PostgresPrograms", "PostgresServer", "find_postgres"]
