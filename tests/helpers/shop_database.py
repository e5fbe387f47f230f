"""A database of a shop for tests of change streams: its tables, a load of many small transactions, and changes of its schema.

The load runs inside the server, each transaction with a COMMIT of its own, from as many connections as are asked for.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.helpers.postgres import PostgresServer
from tests.helpers.postgres_types import NAMED_TYPES, TYPES

LONG_TEXT = 20_000
"""Letters of a text that is kept out of its row (TOASTed)."""


@dataclass(frozen=True)
class ShopTable:
    """`columns` are those of PostgreSQL, `key` its primary key's; `partition_by` is of the table that follows it."""

    name: str
    columns: str
    key: Sequence[str]
    partition_by: Sequence[str] = ()


def _types_that_one_connector_sends() -> list[tuple[str, str, str, Any]]:
    """An interval comes as a number or as text, for the whole connector: as text."""
    return [each for each in TYPES if each[:2] != ("interval", "long")]


ZOO = _types_that_one_connector_sends()
TABLES = (
    ShopTable(
        "accounts",
        "id bigint primary key, owner varchar(40) not null, balance numeric(14,2) not null, ceiling numeric, "
        "branch smallint, opened date, updated timestamptz",
        ["id"],
    ),
    ShopTable(
        "history",
        "id bigint generated always as identity primary key, account bigint, delta numeric(10,2), at timestamp, "
        "how mood, note text, meta jsonb, host inet",
        ["id"],
    ),
    ShopTable(
        "orders",
        "region char(2), number int, category text not null, total numeric(12,2), lines int[], placed timestamptz(3), "
        "gift boolean, primary key (region, number)",
        ["region", "number"],
        ["category"],
    ),
    ShopTable(
        "documents",
        "slug text primary key, title text, body text, rating real, score double precision, tags text[], revision int",
        ["slug"],
    ),
    ShopTable(
        "devices",
        "code uuid primary key, label char(8), payload bytea, up boolean, seen timestamptz, pause interval",
        ["code"],
    ),
    ShopTable(
        "readings",
        "sensor smallint, at timestamp, value double precision, primary key (sensor, at)",
        ["sensor", "at"],
    ),
    ShopTable("people", "id int primary key, name text, phone text", ["id"]),
    ShopTable("scratch", "id int primary key, v text", ["id"]),
    ShopTable(
        "zoo",
        "id bigint primary key, " + ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(ZOO)),
        ["id"],
    ),
)
SCHEMA_CHANGES = (
    ("alter table accounts add column vip boolean", "update accounts set vip = id % 2 = 0 where id % 50 = 0"),
    (
        "alter table documents alter column revision type bigint",
        "update documents set revision = 3000000000 where slug = 'slug 1'",
        "alter table orders alter column total type numeric(16,2)",
        "update orders set total = 12345678901234.25 where number % 50 = 0",
    ),
    ("alter table accounts drop column opened", "update accounts set branch = 7 where id % 9 = 0"),
)
"""A column more, wider types, a column less: each with changes that need it."""
_ROWS = f"""
alter table documents alter column body set storage external;
create sequence person start 1001;
insert into accounts select n, 'owner ' || n, n, case when n % 7 > 0 then n / 7.0 end, n % 10, date '2020-01-01' + n % 900, now()
  from generate_series(1, 2000) n;
insert into orders select chr(65 + n % 20) || 'x', n, 'c' || n % 5, n * 1.5, array[n, null, n + 1], now(), n % 2 = 0
  from generate_series(1, 1000) n;
insert into documents select 'slug ' || n, 'title', repeat(chr(97 + n % 26), {LONG_TEXT}), n / 3.0, n / 7.0, array['a', 'b ' || n], 1
  from generate_series(1, 40) n;
insert into devices select md5(n::text)::uuid, 'd' || n, decode(md5(n::text), 'hex'), true, now(), n * interval '1 hour 1 day'
  from generate_series(1, 200) n;
insert into history (account, note) values (1, 'opened');
insert into readings values (1, '2026-01-01', 'NaN');
insert into people select n, 'name ' || n, null from generate_series(1, 1000) n;
insert into scratch select n, 'first' from generate_series(1, 100) n;
insert into zoo values (1, {", ".join(value for _, _, value, _ in ZOO)});
insert into zoo (id) values (2);
"""
_LOAD = f"""
create procedure load(transactions int, seed double precision, moves boolean, truncates boolean) language plpgsql as $body$
declare
  dice double precision; a int; b int; one record;
begin
  perform setseed(seed);
  for step in 1..transactions loop
    dice := random(); a := 1 + floor(random() * 2000)::int; b := floor(random() * 1000)::int;
    if dice < 0.5 then
      update accounts set balance = balance + b - 500, updated = clock_timestamp() where id = a;
    elsif dice < 0.6 then
      update accounts set ceiling = b / 8.0, branch = null where id = a;
      insert into history (account, delta, at, how, note, meta, host)
        values (a, b / 100.0, clock_timestamp() at time zone 'UTC', case when b % 2 = 0 then 'fine'::mood end,
                'note ' || b || E'\\n"x"', jsonb_build_object('b', b, 'a', array[a]), ('10.0.0.' || b % 250)::inet);
    elsif dice < 0.8 then
      insert into orders values (chr(65 + b % 20) || 'x', a, 'c' || b % 5, b, array[a, b], clock_timestamp(), null)
        on conflict (region, number) do update set category = 'c' || b % 5, total = orders.total + 1;
    elsif dice < 0.85 then
      delete from orders where region = chr(65 + b % 20) || 'x' and number = a;
    elsif dice < 0.87 then
      update documents set revision = revision + 1, rating = random() where slug = 'slug ' || 1 + b % 40;
    elsif dice < 0.871 then
      insert into documents values ('slug ' || b % 60, 'again', repeat(chr(97 + a % 26), {LONG_TEXT}), null, 'NaN', '{{}}', 0)
        on conflict (slug) do update set body = excluded.body, title = null;
    elsif dice < 0.872 then
      delete from documents where slug = 'slug ' || b % 60;
    elsif dice < 0.9 then
      insert into devices values (md5((b % 400)::text)::uuid, 'new', null, b % 2 = 0, null, null)
        on conflict (code) do update set up = not devices.up, seen = clock_timestamp(), pause = (a - 1000) * interval '1 minute';
    elsif dice < 0.96 then
      insert into readings values (b % 30, timestamp '2026-01-01' + a * interval '1 second', random())
        on conflict (sensor, at) do update set value = case when b % 9 = 0 then 'Infinity' else excluded.value end;
    elsif dice < 0.98 then
      if moves and b % 4 = 0 then
        update people set id = nextval('person'), phone = a::text where id = a;
      else
        update people set phone = b::text where id = a;
      end if;
    elsif dice < 0.9995 then
      insert into scratch values (a, 'v' || b) on conflict (id) do update set v = excluded.v;
    elsif truncates and b % 10 = 0 then
      truncate scratch;
    end if;
    commit;
  end loop;
end $body$
"""


class ShopDatabase:
    """The shop in a database of its own. `moves` and `truncates` say whether the load changes keys and truncates."""

    def __init__(
        self, server: PostgresServer, name: str, *, moves: bool = False, truncates: bool = False
    ) -> None:
        self.server = server
        self.name = name
        self._moves, self._truncates = moves, truncates
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def fill(self) -> None:
        """Make the tables and their first rows."""
        with self.server.connect(self.name) as connection:
            connection.execute(NAMED_TYPES)
            for table in TABLES:
                connection.execute(f"create table {table.name} ({table.columns})")
            connection.execute(_ROWS)
            connection.execute(_LOAD)

    def start_load(self, transactions: int, connections: int = 3, seed: int = 7) -> None:
        """Begin to run `transactions`, shared by `connections`."""
        rng = random.Random(seed)
        for number in range(connections):
            share = transactions // connections + (number < transactions % connections)
            thread = threading.Thread(target=self._load, args=(share, rng.random()), daemon=True)
            thread.start()
            self._threads.append(thread)

    def is_loading(self) -> bool:
        """Whether transactions are still to come. Raises what a connection ended with."""
        if self._errors:
            raise self._errors[0]
        return any(thread.is_alive() for thread in self._threads)

    def finish_load(self, timeout_seconds: float = 600) -> None:
        for thread in self._threads:
            thread.join(timeout_seconds)
        assert not self.is_loading(), f"the load is not done after {timeout_seconds} s"
        self._threads.clear()

    def execute(self, *statements: str) -> None:
        with self.server.connect(self.name) as connection:
            for statement in statements:
                connection.execute(statement)

    def _load(self, transactions: int, seed: float) -> None:
        try:
            with self.server.connect(self.name) as connection:
                connection.execute(
                    "call load(%s, %s, %s, %s)", (transactions, seed, self._moves, self._truncates)
                )
        except BaseException as error:
            self._errors.append(error)
