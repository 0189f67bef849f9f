//! How to reach PostgreSQL: the checked URL with the session settings that the statements need, and TLS.

use crate::database::error::{DatabaseError, one_line};
use crate::database::tls::DatabaseTls;
use net::ClientTls;
use std::future::poll_fn;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const SILENT_PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// For the connection and the server's handshake. The library's `connect_timeout` covers only the TCP connection, for each address.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A host that vanished during a statement is noticed after (1 + [`KEEPALIVES`]) times this.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVES: u32 = 3;
/// Notifications that can wait to be read.
const NOTIFICATIONS_MAX: usize = 1000;
const KEEPALIVE_OF_THE_LIBRARY: Duration = Duration::from_secs(2 * 60 * 60);

/// Statements must use indexes and keep their generic plan. Other plans, from statistics that do not count dead rows, make queues in
/// databases collapse. An acknowledged message is on disk. The cleanup of deleted queues relies on the statement timeout.
const OPTIONS: &str = "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed \
    -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off \
    -c statement_timeout=30s -c idle_in_transaction_session_timeout=30s";

/// How to reach the database.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    config: Config,
    tls: Option<DatabaseTls>,
}

/// The part of a connection that transfers bytes. It does so only while it is driven. The task that waits for the reply drives it, so
/// that no other task has to be woken to send the statement or to receive the reply.
pub(crate) struct ConnectionDriver(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Connector {
    /// Parses the database URL and adds the service's settings.
    pub(crate) fn parse(text: &str, authority: Option<&Path>) -> Result<Connector, String> {
        if text.contains("sslmode=verify") || text.contains("sslrootcert") {
            return Err(
                "sslmode=verify-* and sslrootcert are not supported; give --database-authority FILE instead".into()
            );
        }
        let mut config: Config = text.parse().map_err(|error| one_line(&error))?;
        if config.get_hosts().is_empty() {
            return Err("it has no host".into());
        }
        let options = match config.get_options() {
            Some(theirs) => format!("{OPTIONS} {theirs}"),
            None => OPTIONS.to_string(),
        };
        config.options(options);
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
            (Some(path), _) => {
                config.ssl_mode(SslMode::Require);
                Some(DatabaseTls::new(ClientTls::load(path, None).map_err(|error| error.to_string())?.config()))
            }
            // Encryption without verification would look secure and not be.
            (None, SslMode::Require) => {
                return Err("sslmode=require needs --database-authority FILE to verify the server".into());
            }
            _ => None,
        };
        Ok(Connector { config, tls })
    }

    /// A connection that transfers bytes only while its driver is driven.
    pub(super) async fn connect(&self) -> Result<(Client, ConnectionDriver), DatabaseError> {
        in_time(self.connect_driver()).await
    }

    async fn connect_driver(&self) -> Result<(Client, ConnectionDriver), tokio_postgres::Error> {
        // The client reports the driver's error.
        Ok(match &self.tls {
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                (client, ConnectionDriver::new(async move { drop(connection.await) }))
            }
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                (client, ConnectionDriver::new(async move { drop(connection.await) }))
            }
        })
    }

    /// A connection with a task of its own. Its calls can wait for ever.
    pub(crate) async fn connect_alone(&self) -> Result<Client, DatabaseError> {
        let (client, ConnectionDriver(connection)) = self.connect().await?;
        if let Some(connection) = connection {
            // The task ends with the client.
            tokio::spawn(connection);
        }
        Ok(client)
    }

    /// The same, and the notifications that it receives, until either end of it is dropped.
    pub(super) async fn connect_listening(&self) -> Result<(Client, mpsc::Receiver<String>), DatabaseError> {
        in_time(async {
            Ok(match &self.tls {
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    (client, forward_notifications(connection))
                }
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    (client, forward_notifications(connection))
                }
            })
        })
        .await
    }
}

/// A step of connecting, with a limit.
pub(super) async fn in_time<T>(
    step: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseError> {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, step).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(DatabaseError::Silent),
    }
}

/// Drives a connection and forwards its notifications. Notifications beyond the limit are dropped.
fn forward_notifications<S, T>(mut connection: Connection<S, T>) -> mpsc::Receiver<String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(NOTIFICATIONS_MAX);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.try_send(notification.payload().to_string());
            }
        }
    });
    receiver
}

impl ConnectionDriver {
    fn new(connection: impl Future<Output = ()> + Send + 'static) -> ConnectionDriver {
        ConnectionDriver(Some(Box::pin(connection)))
    }

    /// Runs some work, and transfers bytes until it is done. If the connection ends, the client's calls fail.
    pub(crate) async fn drive<W: Future>(&mut self, work: W) -> W::Output {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            let is_over = |connection: &mut Pin<Box<dyn Future<Output = ()> + Send>>| {
                connection.as_mut().poll(context).is_ready()
            };
            if done.is_pending() && self.0.as_mut().is_some_and(is_over) {
                self.0 = None;
            }
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Connector, String> {
        Connector::parse(text, None)
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
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{text}: {error}");
        }
    }
}
