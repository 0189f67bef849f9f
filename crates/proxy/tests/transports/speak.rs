//! Asks and expects over a blocking stream of any kind.

use clock::Clock;
use proxy::{Config, Running, start};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Nothing on one machine takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request and reads exactly as many bytes as are expected.
pub(crate) fn ask(stream: &mut (impl Read + Write), request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
    stream.write_all(request.as_ref()).expect("it takes the request");
    stream.flush().expect("it takes the request");
    expect(stream, expected);
}

/// Reads exactly as many bytes as are expected.
pub(crate) fn expect(stream: &mut impl Read, expected: impl AsRef<[u8]>) {
    let mut reply = vec![0; expected.as_ref().len()];
    let mut filled = 0;
    while filled < reply.len() {
        match stream.read(&mut reply[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => panic!("{error}, after {:?}", String::from_utf8_lossy(&reply[..filled])),
        }
    }
    assert!(
        reply[..filled] == *expected.as_ref(),
        "{:?} instead of {:?}",
        String::from_utf8_lossy(&reply[..filled.min(200)]),
        String::from_utf8_lossy(&expected.as_ref()[..expected.as_ref().len().min(200)])
    );
}

/// A proxy at these addresses, before these servers.
pub(crate) fn proxy(listen: &[String], servers: &[String], change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::new("", servers);
    config.listen = listen.to_vec();
    config.loops = 2;
    change(&mut config);
    start(config, Clock::monotonic()).expect("the proxy starts")
}

/// Ends a proxy, and finds that no job was lost.
pub(crate) fn stop(running: Running) {
    assert_eq!(running.stop().expect("it ends well").lost, 0, "no job is lost");
}

/// A client of a unix socket.
pub(crate) fn unix_client(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}
