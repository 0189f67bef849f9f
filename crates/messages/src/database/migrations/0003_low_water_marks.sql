-- Services skip the dead rows below a low-water mark. A redelivered message has an old id, which is below the mark. Therefore the
-- transaction that redelivers also records the id here. docs/messages-design.md has the argument.
ALTER TABLE queue
    ADD COLUMN era integer NOT NULL DEFAULT 0,
    ADD COLUMN era_began_at timestamptz NOT NULL DEFAULT now(),
    -- The smallest id that was redelivered in this era, and in the era before.
    ADD COLUMN min_redelivered_id bigint NOT NULL DEFAULT 9223372036854775807,
    ADD COLUMN previous_min_redelivered_id bigint NOT NULL DEFAULT 9223372036854775807;
