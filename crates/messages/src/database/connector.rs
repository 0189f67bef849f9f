//! Connects to PostgreSQL: checks the URL, and adds TLS and the session settings that the statements need. With several hosts, connects
//! to the first one that answers and accepts writes.

use crate::database::connection_driver::{ConnectionDriver, Progress, observe};
use crate::database::error::{DatabaseError, one_line};
use crate::database::tls::{DatabaseTls, Encrypted};
use crate::database::{environment, hosts};
use crate::observe::limits::{Limit, LimitCounts};
use net::ClientTls;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};
use tokio_postgres::error::DbError;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage, Socket};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const SILENT_PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit for connecting to one host, including the server's handshake. The library's `connect_timeout` covers only the TCP connection.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// If a host has not answered after this time, the next one is tried as well.
const NEXT_HOST_AFTER: Duration = Duration::from_secs(1);
/// A host that vanished during a statement is noticed after (1 + [`KEEPALIVES`]) times this.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVES: u32 = 3;
/// Notifications that can wait to be read.
const NOTIFICATIONS_MAX: usize = 1000;
const KEEPALIVE_OF_THE_LIBRARY: Duration = Duration::from_secs(2 * 60 * 60);

/// Statements must use indexes and keep their generic plan. Other plans, from statistics that do not count dead
/// rows or of a table that was empty, make queues in databases collapse. An acknowledged message is on disk. The cleanup of deleted queues relies on the statement timeout. A role's settings
/// must not hide the warning of [`WAIT_FOR_STANDBY`], nor end the connections of lanes that have no requests.
const OPTIONS: &str = "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed \
    -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off \
    -c enable_indexscan=on -c enable_indexonlyscan=on -c enable_nestloop=on -c enable_tidscan=on \
    -c statement_timeout=30s -c lock_timeout=0 -c idle_in_transaction_session_timeout=30s -c idle_session_timeout=0 \
    -c client_min_messages=warning -c waystage.session=on";

/// Whether the server has received these settings. A pooler drops them.
const HAS_SETTINGS: &str = "SELECT current_setting('waystage.session', true) IS NOT DISTINCT FROM 'on'";
/// Ends a limit for transactions, with which the server would end the connection. Versions before 17 refuse its name in the options.
const NO_TRANSACTION_TIMEOUT: &str = ", CASE WHEN current_setting('waystage.session', true) = 'on' \
    AND current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', false) END";

/// The function of PostgreSQL that waits for synchronous standbys. It warns if its wait was cancelled.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// How to reach the database.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// One configuration for each host.
    hosts: Vec<Config>,
    tls: Option<DatabaseTls>,
    /// The query with which each connection begins.
    first_query: Arc<str>,
    /// The host that accepted the latest connection. All connections of the service try it first.
    latest_host: Arc<AtomicUsize>,
    pub(crate) limits: Arc<LimitCounts>,
}

/// The notifications that a connection receives.
pub(super) type Notifications = mpsc::Receiver<String>;

/// The session settings with which the server notices a vanished host as soon as the service does. Otherwise its process keeps locks and an
/// open transaction for as long as the server's kernel keeps the connection: by default more than two hours. No role needs a right for
/// them, and for unix sockets they have no effect.
fn keepalives_of_the_server() -> String {
    let (pause, silence) = (KEEPALIVE.as_secs(), SILENT_PEER_TIMEOUT.as_secs());
    format!(
        "-c tcp_keepalives_idle={pause}s -c tcp_keepalives_interval={pause}s -c tcp_keepalives_count={KEEPALIVES} \
         -c tcp_user_timeout={silence}s"
    )
}

/// A connection, encrypted or not.
enum Wire {
    Plain(Box<Connection<Socket, NoTlsStream>>),
    Encrypted(Box<Connection<Socket, Encrypted<Socket>>>),
}

impl Connector {
    /// Parses the database URL and adds the service's settings.
    pub(crate) fn parse(text: &str, authority: Option<&Path>) -> Result<Connector, String> {
        if text.contains("sslmode=verify") || text.contains("sslrootcert") {
            return Err(
                "sslmode=verify-* and sslrootcert are not supported; give --database-authority FILE instead".into()
            );
        }
        let mut config: Config = text.parse().map_err(|error| one_line(&error))?;
        if config.get_channel_binding() == ChannelBinding::Require {
            return Err(
                "channel_binding=require is not supported; remove it, and give --database-authority FILE to verify \
                 the server"
                    .into(),
            );
        }
        environment::complete(&mut config, &environment::of_process)?;
        let theirs = config.get_options().unwrap_or_default();
        let limit = if theirs.contains("transaction_timeout") { "" } else { NO_TRANSACTION_TIMEOUT };
        let first_query = format!("{HAS_SETTINGS}{limit}").into();
        config.options(format!("{OPTIONS} {} {theirs}", keepalives_of_the_server()));
        if config.get_application_name().is_none() {
            config.application_name("waystage");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENT_PEER_TIMEOUT);
        }
        if config.get_keepalives_idle() == KEEPALIVE_OF_THE_LIBRARY {
            config.keepalives_idle(KEEPALIVE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(KEEPALIVES);
        }
        let is_socket = config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)));
        let tls = match (authority, config.get_ssl_mode()) {
            (Some(_), SslMode::Disable) => {
                return Err("sslmode=disable contradicts --database-authority; remove one of them".into());
            }
            (Some(_), _) if is_socket => {
                return Err("PostgreSQL has no TLS over unix sockets; remove --database-authority".into());
            }
            (Some(_), _) if config.get_hosts().is_empty() && !config.get_hostaddrs().is_empty() => {
                return Err("hostaddr alone has no name that TLS could verify; give host as well".into());
            }
            (Some(path), _) => {
                config.ssl_mode(SslMode::Require);
                Some(DatabaseTls::new(ClientTls::load(path, None).map_err(|error| error.to_string())?.config()))
            }
            // Encryption without verification would look secure and not be.
            (None, SslMode::Require) => {
                return Err("sslmode=require needs --database-authority FILE to verify the server".into());
            }
            // A mode in the URL takes precedence over the variable.
            (None, SslMode::Prefer) if !is_socket => {
                environment::check_encryption(&environment::of_process)?;
                None
            }
            _ => None,
        };
        let mut hosts = hosts::each(&config)?;
        environment::add_passwords(&mut hosts, &environment::of_process)?;
        Ok(Connector { hosts, tls, first_query, latest_host: Arc::default(), limits: Arc::default() })
    }

    /// A connection that transfers bytes only while its driver is driven.
    pub(super) async fn connect(&self) -> Result<(Client, ConnectionDriver), DatabaseError> {
        let (client, wire) = self.open(HANDSHAKE_TIMEOUT).await?;
        Ok((client, ConnectionDriver::new(wire.transfer())))
    }

    /// A connection with a task of its own. Its calls can wait for ever. `within` is the timeout for each host.
    pub(crate) async fn connect_alone(&self, within: Duration) -> Result<(Client, Progress), DatabaseError> {
        let (client, wire) = self.open(within).await?;
        let (transfer, progress) = observe(wire.transfer());
        // The task ends with the client.
        tokio::spawn(transfer);
        Ok((client, progress))
    }

    /// The same, and the notifications that it receives, until either end of it is dropped.
    pub(super) async fn connect_listening(&self) -> Result<(Client, Progress, Notifications), DatabaseError> {
        let (client, wire) = self.open(HANDSHAKE_TIMEOUT).await?;
        let (progress, notifications) = wire.forward_notifications(self.limits.clone());
        Ok((client, progress, notifications))
    }

    /// Connects to the first host that accepts the connection, beginning with the host of the latest one. The next host is tried when one
    /// fails, and beside a host that does not answer soon, which would otherwise use up the whole time limit. If all fail and any host
    /// had a temporary error, returns that error.
    async fn open(&self, within: Duration) -> Result<(Client, Wire), DatabaseError> {
        let first = self.latest_host.load(Ordering::Relaxed);
        let mut places = 0..self.hosts.len();
        let mut attempts = JoinSet::new();
        let mut failure: Option<DatabaseError> = None;
        loop {
            if let Some(place) = places.next() {
                let (connector, number) = (self.clone(), (first + place) % self.hosts.len());
                attempts.spawn(async move {
                    (number, in_time(within, connector.open_host(&connector.hosts[number])).await)
                });
            }
            let attempted = if places.is_empty() {
                attempts.join_next().await
            } else {
                match tokio::time::timeout(NEXT_HOST_AFTER, attempts.join_next()).await {
                    Ok(attempted) => attempted,
                    Err(_) => continue,
                }
            };
            match attempted {
                Some(Ok((number, Ok(connected)))) => {
                    self.latest_host.store(number, Ordering::Relaxed);
                    return Ok(connected);
                }
                Some(Ok((_, Err(error)))) if failure.as_ref().is_none_or(DatabaseError::is_lasting) => {
                    failure = Some(error);
                }
                Some(_) => {}
                None => return Err(failure.unwrap_or(DatabaseError::Silent)),
            }
        }
    }

    async fn open_host(&self, host: &Config) -> Result<(Client, Wire), DatabaseError> {
        let connected = match &self.tls {
            None => host.connect(NoTls).await.map(|(client, connection)| (client, Wire::Plain(Box::new(connection)))),
            Some(tls) => host
                .connect(tls.clone())
                .await
                .map(|(client, connection)| (client, Wire::Encrypted(Box::new(connection)))),
        };
        let (client, mut wire) = connected.map_err(DatabaseError::of_connection)?;
        // Here, so that another host is tried instead of a pooler. The query is a simple one: a pooler shares server connections, and a
        // statement that another client has prepared on one of them would make an extended query fail with an error that looks temporary.
        let messages = wire.drive(client.simple_query(&self.first_query)).await??;
        let has_settings =
            |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
        if messages.iter().any(has_settings) { Ok((client, wire)) } else { Err(DatabaseError::Pooler) }
    }
}

impl Wire {
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        match self {
            Wire::Plain(connection) => connection.poll_message(context),
            Wire::Encrypted(connection) => connection.poll_message(context),
        }
    }

    /// Runs some work, and transfers bytes until it is done. Fails if the connection ends before.
    async fn drive<W: Future>(&mut self, work: W) -> Result<W::Output, DatabaseError> {
        let (mut work, mut is_over) = (pin!(work), false);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(done) = work.as_mut().poll(context) {
                    return Poll::Ready(Ok(done));
                }
                if is_over {
                    return Poll::Ready(Err(DatabaseError::Silent));
                }
                match self.poll_message(context) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => is_over = true,
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Transfers bytes until the connection ends. The client's calls return the error. If the wait for a synchronous standby was cancelled,
    /// the server reports a success, although the standby may not have the transaction. The connection then ends before the client can read
    /// this reply, so that the outcome is unknown.
    async fn transfer(mut self) {
        while let Some(Ok(message)) = poll_fn(|context| self.poll_message(context)).await {
            if matches!(&message, AsyncMessage::Notice(notice) if is_cancelled_wait(notice)) {
                return;
            }
        }
    }

    /// Transfers bytes and forwards notifications. Notifications beyond the limit are dropped and counted.
    fn forward_notifications(mut self, limits: Arc<LimitCounts>) -> (Progress, Notifications) {
        let (sender, receiver) = mpsc::channel(NOTIFICATIONS_MAX);
        let (transfer, progress) = observe(async move {
            while let Some(Ok(message)) = poll_fn(|context| self.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message
                    && let Err(TrySendError::Full(_)) = sender.try_send(notification.payload().to_string())
                {
                    limits.reach(Limit::Notifications);
                }
            }
        });
        tokio::spawn(transfer);
        (progress, receiver)
    }
}

fn is_cancelled_wait(notice: &DbError) -> bool {
    notice.routine() == Some(WAIT_FOR_STANDBY)
}

/// A step of connecting, with a time limit.
pub(super) async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    tokio::time::timeout(limit, step).await.unwrap_or(Err(DatabaseError::Silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Connector, String> {
        Connector::parse(text, None)
    }

    #[tokio::test]
    async fn a_silent_host_delays_the_next_one_only_briefly() {
        let Some(server) = crate::embedded::test_server::TestServer::start() else { return };
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let url = server.url();
        let good = url.split('\'').nth(1).unwrap();
        let database =
            parse(&format!("host='127.0.0.1,{good}' port={port},5432 user=waystage dbname=postgres")).unwrap();
        let within = |limit| in_time(limit, async { database.connect().await.map(drop) });
        within(HANDSHAKE_TIMEOUT - Duration::from_millis(500)).await.unwrap();
        assert_eq!(database.latest_host.load(Ordering::Relaxed), 1);
        within(HANDSHAKE_TIMEOUT).await.unwrap();
    }

    /// With paused time, the clock advances whenever all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let database = parse(&format!("host=127.0.0.1 port={port} user=me")).unwrap();
        let Err(error) = database.connect().await else { panic!("it answered") };
        assert!(!error.is_lasting(), "{error}");
    }

    #[test]
    fn a_database_is_a_url_or_words() {
        assert!(parse("postgres://me@localhost/queues").is_ok());
        assert!(parse("host=/run/postgresql user=me options='-c work_mem=8MB'").is_ok());
        for text in [
            "",
            "nonsense",
            "postgres://me@localhost:no/queues",
            "user=me",
            "host=a sslmode=require",
            "host=a sslmode=verify-full",
            "host=a,b port=1,2,3",
            "host=a target_session_attrs=read-only",
            "host=a channel_binding=require",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{text}: {error}");
        }
    }
}
