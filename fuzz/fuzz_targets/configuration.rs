//! For any text of a configuration file: either it is valid, and every key has a server, or the error is one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::{Document, ProxyFile, Router};

/// A router with more places on its ring takes too long to build for a fuzzer.
const SERVERS_MAX: usize = 50;
const WEIGHT_MAX: u32 = 20;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let document = Document::new("proxy.toml", text);
    match check(&document) {
        Ok(()) => {}
        Err(line) => {
            assert!(line.starts_with("proxy.toml"), "{line:?}");
            assert!(!line.contains(['\n', '\r']), "{line:?}");
        }
    }
});

fn check(document: &Document) -> Result<(), String> {
    let file: ProxyFile = document.settings().map_err(|error| error.to_string())?;
    let same = file.clone().overridden_by(ProxyFile::default());
    let config = file.config().map_err(|error| document.locate(&error).to_string())?;
    assert_eq!(Ok(&config), same.config().as_ref(), "arguments that are not given change nothing");
    config.check().map_err(|error| document.locate(&error).to_string())?;
    let backends: Vec<_> = config.backends().collect();
    if backends.len() <= SERVERS_MAX && backends.iter().all(|(_, server)| server.weight <= WEIGHT_MAX) {
        let router = Router::new(&config);
        for key in [&b"k"[..], b"{a}b", b"\xff\r\0", &[b'k'; 250]] {
            assert!(usize::from(router.primary(key)) < backends.len());
            assert!(router.replicas(key).all(|backend| usize::from(backend) < backends.len()));
        }
    }
    Ok(())
}
