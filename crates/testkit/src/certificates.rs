//! Certificate authorities and certificates that last as long as a test, and TLS clients that use them.

use net::IdentityFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A timeout longer than any step of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A blocking TLS client.
pub type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// A certificate authority, and the folder of its files.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    /// A new authority with its own folder.
    #[allow(clippy::new_without_default, reason = "every authority is different")]
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("authority.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        Authority { issuer: Issuer::new(parameters, key), folder }
    }

    /// Its own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The path of another file in its folder.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A certificate for a host.
    pub fn sign(&self, host: &str) -> IdentityFiles {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![host.to_string()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        IdentityFiles {
            certificate: self.write(&format!("{host}.pem"), &certificate.pem()),
            key: self.write(&format!("{host}.key"), &key.serialize_pem()),
        }
    }

    /// The TLS configuration of a client that trusts this authority and presents a certificate if it has one.
    pub fn client_config(&self, identity: Option<&IdentityFiles>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let read = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
                builder.with_client_auth_cert(vec![read(&identity.certificate)], key).unwrap()
            }
        })
    }

    /// The client's side of a TLS session with the server at 127.0.0.1.
    pub fn session(&self, identity: Option<&IdentityFiles>) -> ClientConnection {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        ClientConnection::new(self.client_config(identity), name).unwrap()
    }

    /// A client that requests a certificate for this host, and refuses any other.
    pub fn client_of(&self, host: &str, address: SocketAddr) -> TlsClient {
        let name = ServerName::try_from(host.to_string()).unwrap();
        StreamOwned::new(ClientConnection::new(self.client_config(None), name).unwrap(), tcp(address))
    }

    /// A client that trusts this authority.
    pub fn client(&self, address: SocketAddr, identity: Option<&IdentityFiles>) -> TlsClient {
        StreamOwned::new(self.session(identity), tcp(address))
    }
}

/// A plain connection.
pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}
