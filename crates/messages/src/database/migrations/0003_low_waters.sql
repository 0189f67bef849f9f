-- Services skip the dead rows before the oldest message that they know of. What comes back with an old id is before it: whoever puts it
-- back says so here, in the same transaction. docs/messages.md has the argument.
ALTER TABLE queue
    ADD COLUMN era integer NOT NULL DEFAULT 0,
    ADD COLUMN era_began_at timestamptz NOT NULL DEFAULT now(),
    -- No message that came back in this era has a smaller id; and in the one before.
    ADD COLUMN returned_from bigint NOT NULL DEFAULT 9223372036854775807,
    ADD COLUMN returned_before bigint NOT NULL DEFAULT 9223372036854775807;
