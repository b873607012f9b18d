"""SQLite files that nobody vouches for: only plain tables are read, nothing in the file is run, sizes are limited."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import numpy as np

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MAX_ROWS = 200_000_000
_MAX_TEXT = 1 << 26
_PART = 200_000
_FAULTS = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""What sqlite3 raises for a damaged file; a message of SQLite that quotes damaged text cannot be decoded."""
_FIX = "export it again: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"


class Database:
    """A read-only SQLite file; `tables`: plain table → its columns, as far as the file has them.

    Views, virtual tables and triggers are passed over: reading one would run what the file says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._db.execute("PRAGMA query_only = ON")
            self._db.execute("PRAGMA cell_size_check = ON")
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT)
            self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            names = self._db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        except _FAULTS as e:
            raise self._broken(e) from e
        self.tables: dict[str, set[str]] = {}
        for name, sql in names:
            if isinstance(name, str) and not str(sql).lstrip().upper().startswith("CREATE VIRTUAL"):
                columns = self.rows(f"PRAGMA table_info({_quoted(name)})")
                self.tables[name] = {str(c[1]) for c in columns}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _broken(self, error: Exception) -> BrokenInput:
        return BrokenInput(f"{self.path}: the SQLite file cannot be read ({str(error)[:160]}); {_FIX}")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query, limited in number. Raises BrokenInput, LimitExceeded."""
        try:
            found = self._db.execute(sql)
            out: list[tuple[Any, ...]] = []
            while part := found.fetchmany(_PART):
                out += part
                if len(out) > MAX_ROWS:
                    raise LimitExceeded(f"{self.path}: more than {MAX_ROWS:,} rows; export a shorter range")
        except _FAULTS as e:
            raise self._broken(e) from e
        return out

    def has(self, table: str, *columns: str) -> bool:
        """Whether a plain table of that name has all the columns."""
        return set(columns) <= self.tables.get(table, set()) if table in self.tables else False

    def integers(self, table: str, columns: tuple[str, ...], where: str = "1") -> dict[str, NDArray[np.int64]]:
        """Columns of a table as int64; -1 for NULL, for what is no integer and for a column that is missing.

        where: a condition in SQL, made of our own words only.
        """
        have = self.tables[table]
        cells = [
            f"CASE typeof({_quoted(c)}) WHEN 'integer' THEN {_quoted(c)} ELSE -1 END" if c in have else "-1"
            for c in columns
        ]
        sql = f"SELECT {', '.join(cells)} FROM {_quoted(table)} NOT INDEXED WHERE {where}"  # noqa: S608 - names are quoted
        parts: list[NDArray[np.int64]] = [np.empty((0, len(columns)), np.int64)]
        total = 0
        try:
            found = self._db.execute(sql)
            while part := found.fetchmany(_PART):
                parts.append(np.array(part, np.int64))
                total += len(part)
                if total > MAX_ROWS:
                    raise LimitExceeded(f"{self.path}: more than {MAX_ROWS:,} rows in {table}; export a shorter range")
        except _FAULTS as e:
            raise self._broken(e) from e
        joined = np.concatenate(parts)
        return {c: np.ascontiguousarray(joined[:, i]) for i, c in enumerate(columns)}

    def select(self, table: str, columns: tuple[str, ...], where: str = "1") -> list[tuple[Any, ...]]:
        """Columns of a table with whatever type each cell has; None for a column that is missing."""
        have = self.tables[table]
        cells = [_quoted(c) if c in have else "NULL" for c in columns]
        return self.rows(f"SELECT {', '.join(cells)} FROM {_quoted(table)} NOT INDEXED WHERE {where}")  # noqa: S608 - names are quoted

    def strings(self) -> dict[int, str]:
        """The table of strings: id → text."""
        if not self.has("StringIds", "id", "value"):
            return {}
        return {i: t for i, t in self.select("StringIds", ("id", "value")) if isinstance(i, int) and isinstance(t, str)}


def tables_of(path: Path) -> set[str]:
    """Names of the plain tables; empty for a file that is no readable database."""
    try:
        with Database(path) as db:
            return set(db.tables)
    except UnusableInput:
        return set()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
