-- The cleanup looks for deleted queues every 30 s. Without this index it reads the rows of all queues.
CREATE INDEX queue_deleted ON queue (deleted_at) WHERE deleted_at IS NOT NULL;
