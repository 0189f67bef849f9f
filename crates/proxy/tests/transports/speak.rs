//! Sends requests and checks replies over any blocking stream.

use clock::Clock;
use proxy::{Config, Running, start};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A timeout that nothing on one machine exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request and reads exactly as many bytes as are expected.
pub(crate) fn ask(stream: &mut (impl Read + Write), request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
    stream.write_all(request.as_ref()).expect("the server accepts the request");
    stream.flush().expect("the server accepts the request");
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

/// A proxy at these addresses, in front of these servers.
pub(crate) fn proxy(listen: &[String], servers: &[String], change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::new("", servers);
    config.listen = listen.iter().map(|address| address.as_str().into()).collect();
    config.loops = 2;
    change(&mut config);
    start(config, Clock::monotonic()).expect("the proxy starts")
}

/// Stops a proxy, and checks that no job was lost.
pub(crate) fn stop(running: Running) {
    assert_eq!(running.stop().expect("the proxy stops without an error").lost, 0, "no job is lost");
}

/// A client of a unix socket.
pub(crate) fn unix_client(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server that keeps one value of any size, which memcached does not; its threads end with their connections.
pub(crate) fn keeper() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || keep(stream, &kept));
        }
    });
    address
}

fn keep(stream: TcpStream, kept: &Mutex<Vec<u8>>) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&count| count > 0)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["version"] => writer.write_all(b"VERSION 1.6.0\r\n").ok()?,
            ["set", _, _, _, length] => {
                let mut value = vec![0; length.parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut value).ok()?;
                *kept.lock().unwrap() = value;
                writer.write_all(b"STORED\r\n").ok()?;
            }
            ["get", key] => {
                let value = kept.lock().unwrap().clone();
                writer.write_all(format!("VALUE {key} 0 {}\r\n", value.len() - 2).as_bytes()).ok()?;
                writer.write_all(&value).ok()?;
                writer.write_all(b"END\r\n").ok()?;
            }
            _ => panic!("{line:?} was not expected"),
        }
    }
}
