//! For any messages on the control socket, from a successor or from a predecessor: nothing panics or hangs, the proxy goes on
//! serving unless it was replaced, and no descriptor is left.
//!
//! The first byte of the input selects the side, and 0xff separates the messages. The first byte of a predecessor's message is
//! the number of descriptors that come with it.
#![no_main]

use clock::Clock;
use libfuzzer_sys::fuzz_target;
use net::ControlSocket;
use proxy::{Config, FromManager, LogLevel, Running, start, start_with};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// No backend listens there.
const NOWHERE: &str = "127.0.0.1:9";
const PATIENCE: Duration = Duration::from_secs(40);

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
/// The proxy that receives the messages of successors. It is started again when one has replaced it.
static PROXY: Mutex<Option<Predecessor>> = Mutex::new(None);

struct Predecessor {
    running: Running,
    notice: Receiver<()>,
    /// The number of descriptors before it was started.
    before: usize,
}

fuzz_target!(|input: &[u8]| {
    let Some((&side, text)) = input.split_first() else { return };
    let messages: Vec<&[u8]> = text.split(|&byte| byte == 0xff).take(8).collect();
    if side % 2 == 0 { succeed(&messages) } else { precede(&messages) }
});

fn config(control: Option<PathBuf>) -> Config {
    let mut config = Config::new("127.0.0.1:0", &[NOWHERE.to_string()]);
    config.loops = 1;
    config.log.level = LogLevel::Off;
    config.transport.control = control;
    config
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Every thread that had descriptors has been joined, so none is closed later.
fn check_descriptors(before: usize) {
    let names = || std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path().read_link());
    assert_eq!(open_descriptors(), before, "descriptors are left: {:?}", names().collect::<Vec<_>>());
}

impl Predecessor {
    fn stop(self) {
        assert_eq!(self.running.stop().unwrap().lost, 0);
        check_descriptors(self.before);
    }
}

/// Sends the messages of a successor to a proxy.
fn succeed(messages: &[&[u8]]) {
    let path = FOLDER.path().join("control");
    let mut guard = PROXY.lock().unwrap();
    let proxy = guard.take().unwrap_or_else(|| {
        let before = open_descriptors();
        let running = start(config(Some(path.clone())), Clock::monotonic()).unwrap();
        let notice = running.handed_over().unwrap();
        Predecessor { running, notice, before }
    });
    send(&path, messages);
    // The messages have been handled when the proxy replies to the next one.
    let is_replaced = send(&path, &[b"take-over 1"]) == 0;
    assert!(!is_replaced || proxy.notice.recv_timeout(PATIENCE).is_ok(), "no reply to a take-over");
    if is_replaced {
        proxy.stop();
    } else {
        let mut client = TcpStream::connect(proxy.running.address().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"mn\r\n").unwrap();
        let mut reply = [0; 4];
        client.read_exact(&mut reply).expect("the proxy goes on serving");
        *guard = Some(proxy);
    }
}

/// Sends messages, and returns the number of bytes of the first reply.
fn send(path: &Path, messages: &[&[u8]]) -> usize {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    if socket.connect(&SockAddr::unix(path).unwrap()).is_err() {
        return 0;
    }
    let is_sent = messages.iter().all(|message| socket.send(message).is_ok());
    let is_asked = is_sent && messages.first().is_some_and(|message| *message == b"take-over 1");
    // The descriptors that come with the reply are closed by the kernel, because no place for them is offered.
    if is_asked { (&socket).read(&mut [0; 4096]).unwrap_or(0) } else { 0 }
}

/// Starts a proxy that takes over from a process that sends these messages.
fn precede(messages: &[&[u8]]) {
    let path = FOLDER.path().join("predecessor");
    // Its connections come and go at any time. Without it, the descriptors can be counted exactly.
    PROXY.lock().unwrap().take().into_iter().for_each(Predecessor::stop);
    let before = open_descriptors();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix_path = FOLDER.path().join("clients");
    let unix = UnixListener::bind(&unix_path).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap().to_string();
    let lent: Vec<BorrowedFd<'_>> = vec![tcp.as_fd(), unix.as_fd(), udp.as_fd(), tcp.as_fd()];
    let control = ControlSocket::bind(&path, false).unwrap();
    let mut config = config(None);
    config.listen = vec![address.as_str().into()];
    config.transport.take_over = Some(path);
    let outcome = std::thread::scope(|scope| {
        let successor = scope.spawn(|| start_with(config, FromManager::default(), Clock::monotonic()));
        let channel = loop {
            match control.accept() {
                Ok(channel) => break channel,
                Err(_) if successor.is_finished() => return successor.join().unwrap(),
                Err(_) => std::thread::yield_now(),
            }
        };
        for message in messages {
            let (count, text) = message.split_first().unwrap_or((&0, b""));
            let text = String::from_utf8_lossy(text).replace("@", &address);
            let _ = channel.send(&text, &lent[..usize::from(*count) % (lent.len() + 1)]);
        }
        drop(channel);
        successor.join().unwrap()
    });
    drop((tcp, unix, udp, control));
    let _ = std::fs::remove_file(unix_path);
    match outcome {
        Ok(running) => assert_eq!(running.stop().unwrap().lost, 0),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        }
    }
    check_descriptors(before);
}
