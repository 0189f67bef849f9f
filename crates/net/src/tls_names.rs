//! Chooses one of several certificates by the host name that a TLS client requests (SNI).

use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// The certificates of a server.
#[derive(Debug)]
pub(crate) struct CertificatesByName {
    /// For clients that request no name, or one that no certificate has.
    pub(crate) usual: Arc<CertifiedKey>,
    pub(crate) others: Vec<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for CertificatesByName {
    /// The first certificate for this name whose key the client can use. A server can have several of them for the same name.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let all = || std::iter::once(&self.usual).chain(&self.others);
        let is_usable = |key: &Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let named = name.and_then(|name| all().find(|key| is_for(key, &name) && is_usable(key)));
        Some(named.unwrap_or(&self.usual).clone())
    }
}

/// Whether a certificate is valid for this name.
fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = key.end_entity_cert().and_then(ParsedCertificate::try_from);
    parsed.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
}
