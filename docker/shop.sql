-- What the cdc profile's PostgreSQL begins with. Change it as you like while it runs:
--   docker compose -f docker/compose.yaml exec postgres psql -U shop
create table customers (
    id bigint primary key generated always as identity,
    name text not null,
    email text unique,
    since timestamptz not null default now()
);
create table orders (
    id bigint primary key generated always as identity,
    customer_id bigint not null references customers,
    amount numeric(12, 2) not null,
    state text not null default 'new',
    details jsonb
);
create table order_lines (
    order_id bigint references orders,
    line integer,
    product text not null,
    quantity integer not null,
    primary key (order_id, line)
);
insert into customers (name, email) select 'customer ' || n, n || '@example.com' from generate_series(1, 1000) n;
insert into orders (customer_id, amount) select 1 + n % 1000, n * 1.25 from generate_series(1, 5000) n;
insert into order_lines select 1 + n % 5000, 1 + n / 5000, 'product ' || n % 97, 1 + n % 9 from generate_series(0, 14999) n;
