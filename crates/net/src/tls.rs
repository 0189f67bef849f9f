//! TLS configurations of servers and clients, read from PEM files; every invalid file is a one-line error.

use crate::address::HostPort;
use crate::tls_names::CertificatesByName;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// PEM file: the certificate first, then the intermediate certificates.
    pub certificate: PathBuf,
    /// PEM file: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// The TLS configuration of a server.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

/// The TLS configuration of a client, for any server.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// The TLS configuration of a client, for the server with this name.
#[derive(Clone)]
pub struct TlsTo {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The reason why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum TlsError {
    #[error("cannot read {}: {fault}", .path.display())]
    Read { path: PathBuf, fault: String },
    #[error("{} contains no {what} in PEM form", .path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("the certificate in {} and the key in {} do not match: {source}", .certificate.display(), .key.display())]
    Identity { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("{} contains no usable certificate of an authority: {fault}", .path.display())]
    Authority { path: PathBuf, fault: String },
    #[error("TLS verifies the name of a server, and {0:?} is not a name that a certificate can have")]
    Name(String),
    #[error("TLS cannot be configured: {0}")]
    Setup(#[from] rustls::Error),
}

impl ServerTls {
    /// Reads the files. With an authority, clients must present a certificate that it signed.
    ///
    /// # Errors
    /// If a file is missing, empty, damaged, or does not match the others.
    pub fn load(identity: &IdentityFiles, client_authority: Option<&Path>) -> Result<ServerTls, TlsError> {
        ServerTls::load_several(identity, &[], client_authority)
    }

    /// As `load`, with further certificates for clients that request a host name for which one of them is valid.
    ///
    /// # Errors
    /// If a file is missing, empty, damaged, or does not match the others.
    pub fn load_several(
        identity: &IdentityFiles,
        others: &[IdentityFiles],
        client_authority: Option<&Path>,
    ) -> Result<ServerTls, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authority(path)?, provider).build();
                let failed =
                    |fault: &dyn fmt::Display| TlsError::Authority { path: path.into(), fault: fault.to_string() };
                builder.with_client_cert_verifier(verifier.map_err(|error| failed(&error))?)
            }
        };
        let certified = |identity: &IdentityFiles| certified_key(identity, builder.crypto_provider());
        let usual = certified(identity)?;
        let others = others.iter().map(certified).collect::<Result<_, _>>()?;
        let config = builder.with_cert_resolver(Arc::new(CertificatesByName { usual, others }));
        Ok(ServerTls(Arc::new(config)))
    }

    /// The configuration for a library with its own I/O.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.clone()
    }

    pub(crate) fn accept(&self) -> io::Result<rustls::Connection> {
        ServerConnection::new(self.0.clone()).map(rustls::Connection::Server).map_err(io::Error::other)
    }
}

impl ClientTls {
    /// Reads the files. Servers must present a certificate of the authority. The identity is presented to servers that request one.
    ///
    /// # Errors
    /// If a file is missing, empty, damaged, or does not match the others.
    pub fn load(authority_file: &Path, identity: Option<&IdentityFiles>) -> Result<ClientTls, TlsError> {
        let provider = provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(authority(authority_file)?, provider.clone()).build();
        let verifier =
            verifier.map_err(|error| TlsError::Authority { path: authority_file.into(), fault: error.to_string() })?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(verifier);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificates, key) = read_identity(identity)?;
                builder.with_client_auth_cert(certificates, key).map_err(|source| unfit(identity, source))?
            }
        };
        Ok(ClientTls(Arc::new(config)))
    }

    /// The configuration for a library with its own I/O.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }

    /// The configuration for the server with this name, which its certificate must have.
    ///
    /// # Errors
    /// If no certificate can have this name.
    pub fn of(&self, server: &HostPort) -> Result<TlsTo, TlsError> {
        let host = server.host().trim_end_matches('.');
        let name = ServerName::try_from(host.to_string()).map_err(|_| TlsError::Name(host.into()))?;
        Ok(TlsTo { config: self.0.clone(), name })
    }
}

impl TlsTo {
    pub(crate) fn connect(&self) -> io::Result<rustls::Connection> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone());
        connection.map(rustls::Connection::Client).map_err(io::Error::other)
    }
}

impl PartialEq for TlsTo {
    fn eq(&self, other: &TlsTo) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for TlsTo {}

impl fmt::Debug for TlsTo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TlsTo({:?})", self.name)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientTls")
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerTls")
    }
}

/// Whether a connection failed because of TLS: either side refused a certificate, or the bytes are not TLS.
pub fn is_tls_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unfit(identity: &IdentityFiles, source: rustls::Error) -> TlsError {
    TlsError::Identity { certificate: identity.certificate.clone(), key: identity.key.clone(), source }
}

fn unreadable(path: &Path, what: &'static str, error: pem::Error) -> TlsError {
    match error {
        pem::Error::NoItemsFound => TlsError::Empty { path: path.into(), what },
        pem::Error::Io(error) => TlsError::Read { path: path.into(), fault: error.to_string() },
        error => TlsError::Read { path: path.into(), fault: error.to_string() },
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| unreadable(path, "certificate", error);
    let certificates = CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<Vec<_>, _>>();
    match certificates.map_err(failed)? {
        none if none.is_empty() => Err(TlsError::Empty { path: path.into(), what: "certificate" }),
        certificates => Ok(certificates),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(files: &IdentityFiles) -> Result<Identity, TlsError> {
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, "private key", error))?;
    Ok((read_certificates(&files.certificate)?, by_contents(key)))
}

/// The key in the format that its bytes have, whatever the label in the file says. OpenSSL, and so memcached, ignores a wrong
/// label. All formats are a sequence that begins with a version of one byte. The algorithm, a sequence, follows in
/// PKCS #8, a number in PKCS #1, and bytes in SEC1.
fn by_contents(key: PrivateKeyDer<'static>) -> PrivateKeyDer<'static> {
    let bytes = key.secret_der();
    // The length of the sequence has one byte, or its lower bits say how many follow.
    let length_bytes = match bytes.get(1) {
        Some(&first) if first & 0x80 != 0 => 1 + usize::from(first & 0x7f),
        _ => 1,
    };
    let version = bytes.get(1 + length_bytes..).and_then(|rest| rest.strip_prefix(&[0x02, 0x01]));
    match version.and_then(|rest| rest.get(1).copied()) {
        Some(0x30) => PrivateKeyDer::Pkcs8(bytes.to_vec().into()),
        Some(0x02) => PrivateKeyDer::Pkcs1(bytes.to_vec().into()),
        Some(0x04) => PrivateKeyDer::Sec1(bytes.to_vec().into()),
        _ => key,
    }
}

/// Reads a certificate that a server presents.
fn certified_key(files: &IdentityFiles, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
    let (certificates, key) = read_identity(files)?;
    let certified = CertifiedKey::from_der(certificates, key, provider).map_err(|source| unfit(files, source))?;
    certified.end_entity_cert().and_then(ParsedCertificate::try_from).map_err(|source| unfit(files, source))?;
    Ok(Arc::new(certified))
}

fn authority(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::Authority { path: path.into(), fault: error.to_string() })?;
    }
    Ok(Arc::new(roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_a_key_is_that_of_its_bytes() {
        let format = |bytes: &[u8]| match by_contents(PrivateKeyDer::Sec1(bytes.to_vec().into())) {
            PrivateKeyDer::Pkcs1(key) => ("PKCS #1", key.secret_pkcs1_der().to_vec()),
            PrivateKeyDer::Pkcs8(key) => ("PKCS #8", key.secret_pkcs8_der().to_vec()),
            PrivateKeyDer::Sec1(key) => ("SEC1", key.secret_sec1_der().to_vec()),
            _ => unreachable!("there is no other format"),
        };
        for (bytes, expected) in [
            (&[0x30, 0x09, 0x02, 0x01, 0x00, 0x30, 0x00][..], "PKCS #8"),
            (&[0x30, 0x81, 0x80, 0x02, 0x01, 0x01, 0x30, 0x00][..], "PKCS #8"),
            (&[0x30, 0x82, 0x04, 0xbc, 0x02, 0x01, 0x00, 0x02, 0x82][..], "PKCS #1"),
            (&[0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20][..], "SEC1"),
            // The label decides if the bytes are of no format.
            (&[0x30, 0x77, 0x02, 0x01, 0x01][..], "SEC1"),
            (&[0x30, 0xff, 0x02, 0x01, 0x00, 0x02][..], "SEC1"),
            (&[0x30][..], "SEC1"),
            (&[][..], "SEC1"),
        ] {
            assert_eq!(format(bytes), (expected, bytes.to_vec()), "{bytes:02x?}");
        }
    }
}
