//! Two versions of the program at one database, separated by a compatible or by an incompatible step.

use super::*;
use crate::database::connection_driver::Progress;
use crate::database::connector::{Connector, HANDSHAKE_TIMEOUT};
use crate::database::error::DatabaseError;
use crate::database::liveness::{Liveness, ServerProcess};
use crate::embedded::test_server::TestServer;
use std::time::Duration;

const FIRST: Step = Step { text: "CREATE TABLE thing (name text)", oldest_program: 1 };
const OLDER: &[Step] = &[FIRST];
const COMPATIBLE: &[Step] = &[FIRST, Step { text: "ALTER TABLE thing ADD COLUMN size integer", oldest_program: 1 }];
const INCOMPATIBLE: &[Step] =
    &[FIRST, Step { text: "ALTER TABLE thing RENAME COLUMN name TO title", oldest_program: 2 }];
/// An incompatible step, and one that would be compatible by itself.
const COMPATIBLE_LATER: &[Step] = &[
    FIRST,
    Step { text: "ALTER TABLE thing RENAME COLUMN name TO title", oldest_program: 2 },
    Step { text: "ALTER TABLE thing ADD COLUMN size integer", oldest_program: 1 },
];

async fn connect(server: &TestServer) -> Client {
    Connector::parse(&server.url(), None).unwrap().connect_alone(HANDSHAKE_TIMEOUT).await.unwrap().0
}

#[tokio::test]
async fn programs_of_two_versions_work_together_after_a_compatible_step() {
    let Some(server) = TestServer::start() else { return };
    let (mut old, mut new, mut again) = (connect(&server).await, connect(&server).await, connect(&server).await);
    enter(&mut old, OLDER).await.unwrap();
    enter(&mut new, COMPATIBLE).await.unwrap();
    assert_eq!(find(&old).await.unwrap(), Found { step: 2, oldest_program: 1 });
    old.batch_execute("INSERT INTO thing VALUES ('still works')").await.unwrap();
    enter(&mut again, OLDER).await.unwrap();
    enter_in_background(&connect(&server).await, OLDER).await.unwrap();
}

#[tokio::test]
async fn an_incompatible_step_waits_until_no_older_program_is_connected() {
    let Some(server) = TestServer::start() else { return };
    let (mut old, mut new) = (connect(&server).await, connect(&server).await);
    enter(&mut old, OLDER).await.unwrap();
    let refused = enter(&mut new, INCOMPATIBLE).await.unwrap_err();
    assert!(matches!(refused, SchemaError::OlderIsConnected { known: 1 }), "{refused}");
    assert_eq!(find(&new).await.unwrap().step, 1);
    old.batch_execute("INSERT INTO thing (name) VALUES ('still works')").await.unwrap();
    drop(old);
    // The server notices the end of the connection a little later.
    while let Err(error) = enter(&mut new, INCOMPATIBLE).await {
        assert!(matches!(error, SchemaError::OlderIsConnected { .. }), "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut late = connect(&server).await;
    let refused = enter(&mut late, OLDER).await.unwrap_err();
    assert!(matches!(refused, SchemaError::Newer { found: 2, known: 1 }), "{refused}");
    assert!(enter_in_background(&late, OLDER).await.is_err());
}

#[tokio::test]
async fn a_later_compatible_step_does_not_admit_a_program_that_an_earlier_step_excluded() {
    let Some(server) = TestServer::start() else { return };
    let (mut new, mut old) = (connect(&server).await, connect(&server).await);
    enter(&mut new, COMPATIBLE_LATER).await.unwrap();
    assert_eq!(find(&new).await.unwrap(), Found { step: 3, oldest_program: 2 });
    let refused = enter(&mut old, OLDER).await.unwrap_err();
    assert!(matches!(refused, SchemaError::Newer { found: 3, known: 1 }), "{refused}");
    enter(&mut connect(&server).await, INCOMPATIBLE).await.unwrap();
}

#[tokio::test]
async fn an_older_program_that_connects_during_a_step_is_refused_after_it() {
    let Some(server) = TestServer::start() else { return };
    let (mut first, mut new, mut old) = (connect(&server).await, connect(&server).await, connect(&server).await);
    enter(&mut first, OLDER).await.unwrap();
    first.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    // The step waits for this transaction.
    first.batch_execute("BEGIN; LOCK TABLE thing IN ACCESS SHARE MODE").await.unwrap();
    let migrating = tokio::spawn(async move { enter(&mut new, INCOMPATIBLE).await.map(|()| new) });
    let locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1463877632 + 1
        AND objid = 'public'::regnamespace AND mode = 'ExclusiveLock' AND granted";
    while first.query_one(locked, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    let entering = tokio::spawn(async move { enter(&mut old, OLDER).await });
    first.batch_execute("COMMIT").await.unwrap();
    migrating.await.unwrap().unwrap();
    assert!(matches!(entering.await.unwrap(), Err(SchemaError::Newer { found: 2, known: 1 })));
}

#[tokio::test]
async fn services_of_other_schemas_do_not_stop_an_incompatible_step() {
    let Some(server) = TestServer::start() else { return };
    connect(&server).await.batch_execute("CREATE SCHEMA a; CREATE SCHEMA b").await.unwrap();
    let connect_in = async |schemas: &str| {
        let client = connect(&server).await;
        client.batch_execute(&format!("SET search_path = {schemas}")).await.unwrap();
        client
    };
    // Both hold their fence from before there were tables.
    let (mut old, mut new) = (connect_in("a").await, connect_in("b, a").await);
    enter(&mut old, OLDER).await.unwrap();
    // The tables are in `a`, although `b` comes first.
    let refused = enter(&mut new, INCOMPATIBLE).await.unwrap_err();
    assert!(matches!(refused, SchemaError::OlderIsConnected { known: 1 }), "{refused}");
    new.batch_execute("SET search_path = b").await.unwrap();
    enter(&mut new, INCOMPATIBLE).await.unwrap();
    assert_eq!((find(&new).await.unwrap().step, find(&old).await.unwrap().step), (2, 1));
    // An older build has locked the whole database.
    let builds = [connect_in("b").await, connect_in("c").await];
    builds[0].batch_execute("SELECT pg_advisory_lock_shared(1463904085, 1); CREATE SCHEMA c").await.unwrap();
    let [_older, mut third] = builds;
    assert!(matches!(enter(&mut third, INCOMPATIBLE).await, Err(SchemaError::OlderIsConnected { known: 1 })));
}

/// Another service creates the tables in the second schema of the path, after the first one was locked.
#[tokio::test]
async fn a_connection_holds_the_fence_of_the_schema_with_the_tables() {
    let Some(server) = TestServer::start() else { return };
    let (mut late, mut first, gate) = (connect(&server).await, connect(&server).await, connect(&server).await);
    late.batch_execute("CREATE SCHEMA a; CREATE SCHEMA b; SET search_path = a, b").await.unwrap();
    first.batch_execute("SET search_path = b").await.unwrap();
    gate.batch_execute("SELECT pg_advisory_lock(1463877632 + 1, 'a'::regnamespace::oid::integer)").await.unwrap();
    let entering = tokio::spawn(async move { enter(&mut late, OLDER).await.map(|()| late) });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while gate.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    enter(&mut first, OLDER).await.unwrap();
    gate.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    let _late = entering.await.unwrap().unwrap();
    // Its own fence does not count.
    first.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    let refused = enter(&mut first, INCOMPATIBLE).await.unwrap_err();
    assert!(matches!(refused, SchemaError::OlderIsConnected { known: 1 }), "{refused}");
}

/// A migration that fails releases its locks one by one, and another one can begin in between.
#[tokio::test]
async fn the_rest_of_a_migration_that_has_failed_is_no_older_program() {
    let Some(server) = TestServer::start() else { return };
    let (ending, mut next) = (connect(&server).await, connect(&server).await);
    ending.batch_execute("SELECT pg_advisory_lock(1463877632, 'public'::regnamespace::oid::integer)").await.unwrap();
    let ends = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ending.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    };
    let (entered, ()) = tokio::join!(enter(&mut next, OLDER), ends);
    entered.unwrap();
}

#[tokio::test]
async fn a_step_can_take_longer_than_other_statements() {
    let Some(server) = TestServer::start() else { return };
    let connector = Connector::parse(&server.url(), None).unwrap();
    let liveness = Liveness::new(connector, Duration::from_secs(10));
    let client = connect(&server).await;
    let process = ServerProcess::of(&client, Progress::default()).await.unwrap();
    let step = client.batch_execute("SELECT pg_sleep(4)");
    liveness.attend_long(&process, &mut |_| {}, step).await.unwrap().unwrap();
    let statement = client.batch_execute("SELECT pg_sleep(60)");
    let given_up = liveness.attend_for(Duration::from_secs(2), 0, &process, &mut |_| {}, statement).await;
    assert!(matches!(given_up, Err(DatabaseError::Silent)), "{given_up:?}");
}
