//! Reads whether the database accepts writes, which tables and privileges are missing, and which tables they are. Another program can
//! revoke a privilege, or drop, rename or restore tables, while the service runs.

use tokio_postgres::Client;

/// A missing table needs no privilege to be found. `search_path` contains only schemas that the role can use. Restarting a sequence, or
/// creating it again, changes its file.
const STATE: &str = "WITH needed AS (
    SELECT name, to_regclass(name) AS relation, privilege
    FROM unnest('{queue,message,invisible_message,idempotency_key,lost_lease}'::text[]) AS name,
        unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS privilege
    UNION ALL SELECT 'waystage_schema', to_regclass('waystage_schema'), 'SELECT'
    UNION ALL SELECT 'message_id', to_regclass('message_id'), unnest('{USAGE,SELECT}'::text[])
)
SELECT CASE WHEN current_setting('transaction_read_only') = 'off' THEN NULL ELSE pg_is_in_recovery() END,
    (SELECT string_agg(DISTINCT name, ', ') FROM needed WHERE relation IS NULL),
    (SELECT string_agg(privilege || ' on ' || name, ', ') FROM needed WHERE NOT CASE WHEN name = 'message_id'
        THEN has_sequence_privilege(relation, privilege) ELSE has_table_privilege(relation, privilege) END),
    (SELECT concat(relnamespace, ' ', pg_relation_filenode(oid)) FROM pg_class WHERE oid = to_regclass('message_id'))";

/// The state of the database and of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableState {
    /// Why the database accepts no writes, and what to do about it.
    pub(super) read_only: Option<&'static str>,
    /// What is missing, and what to do about it.
    pub(super) problem: Option<String>,
    /// Other tables have another identity, and so have the same tables if their ids start again. None: there are none.
    pub(super) identity: Option<String>,
}

impl TableState {
    pub(super) async fn read(client: &Client) -> Result<TableState, tokio_postgres::Error> {
        let row = client.query_one(STATE, &[]).await?;
        let (missing, forbidden) = (row.try_get(1)?, row.try_get(2)?);
        let read_only = row.try_get::<_, Option<bool>>(0)?.map(|is_standby| match is_standby {
            true => "it is a standby; promote it, or connect to its primary",
            false => "default_transaction_read_only is on for the server, the database or the role; switch it off",
        });
        Ok(TableState { read_only, problem: problem(missing, forbidden), identity: row.try_get(3)? })
    }
}

fn problem(missing: Option<String>, forbidden: Option<String>) -> Option<String> {
    let missing = missing.map(|names| {
        format!(
            "the search_path of the role has no {names}: another program has dropped or renamed them, the search_path has changed, or \
             the role has lost USAGE on the schema; undo it"
        )
    });
    missing.or_else(|| {
        forbidden.map(|privileges| {
            format!("the role of the service lacks privileges: as the owner of the tables GRANT it {privileges}")
        })
    })
}
