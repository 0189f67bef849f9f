//! A DNS server with SRV records that a test decides. It answers over UDP and TCP.

use simple_dns::rdata::{RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a thread of the server looks whether it ends.
const POLL: Duration = Duration::from_millis(20);

/// What the server does with a query.
#[derive(Clone, Debug)]
pub enum DnsReply {
    /// Records, each as priority, weight, port and target, with this time to live in seconds. A reply that does not fit a datagram is
    /// sent over TCP.
    Records(Vec<(u16, u16, u16, String)>, u32),
    /// The name does not exist.
    NoName,
    /// The server has failed.
    Failure,
    /// These bytes, behind the number of the query.
    Bytes(Vec<u8>),
    /// Nothing.
    Silence,
    /// A reply over UDP that is cut off, and over TCP nothing but the end of the connection.
    CutOff,
}

/// A server. It ends when it is dropped.
pub struct DnsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    reply: Mutex<DnsReply>,
    names: Mutex<Vec<String>>,
    over_tcp: AtomicUsize,
    is_over: AtomicBool,
}

impl DnsServer {
    /// Starts a server on a free port of the loopback interface.
    pub fn start(reply: DnsReply) -> DnsServer {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().unwrap();
        let shared = Arc::new(Shared {
            reply: Mutex::new(reply),
            names: Mutex::default(),
            over_tcp: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let (of_udp, of_tcp) = (shared.clone(), shared.clone());
        let threads =
            vec![thread::spawn(move || of_udp.serve_udp(&udp)), thread::spawn(move || of_tcp.serve_tcp(&tcp))];
        DnsServer { address, shared, threads }
    }

    /// Its address, for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what it does with later queries.
    pub fn set(&self, reply: DnsReply) {
        *self.shared.reply.lock().unwrap() = reply;
    }

    /// The names for which queries have arrived over UDP, each as often as it was asked for.
    pub fn names(&self) -> Vec<String> {
        self.shared.names.lock().unwrap().clone()
    }

    /// How many queries have arrived over TCP.
    pub fn over_tcp(&self) -> usize {
        self.shared.over_tcp.load(Ordering::Relaxed)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Two sockets on the same port.
fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            udp.set_read_timeout(Some(POLL)).unwrap();
            tcp.set_nonblocking(true).unwrap();
            return (udp, tcp);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

impl Shared {
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
            let Ok(query) = Packet::parse(&buffer[..length]) else { continue };
            self.names.lock().unwrap().push(query.questions[0].qname.to_string());
            let room = query.opt().map_or(512, |opt| usize::from(opt.udp_packet_size));
            let reply = self.reply.lock().unwrap().clone();
            let bytes = match &reply {
                DnsReply::CutOff => cut_off(&query),
                _ => {
                    bytes(&reply, &query).map(|bytes| if bytes.len() > room { cut_off(&query).unwrap() } else { bytes })
                }
            };
            bytes.map(|bytes| socket.send_to(&bytes, client));
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(POLL);
                continue;
            };
            self.over_tcp.fetch_add(1, Ordering::Relaxed);
            // A client that leaves early is not the server's affair.
            let _ = self.reply_over_tcp(stream);
        }
    }

    fn reply_over_tcp(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query)?;
        let query = Packet::parse(&query).unwrap();
        let reply = self.reply.lock().unwrap().clone();
        if let Some(bytes) = bytes(&reply, &query) {
            stream.write_all(&(bytes.len() as u16).to_be_bytes())?;
            stream.write_all(&bytes)?;
        }
        Ok(())
    }
}

/// An empty reply that says that it is cut off.
fn cut_off(query: &Packet<'_>) -> Option<Vec<u8>> {
    let mut reply = query.clone().into_reply();
    reply.set_flags(PacketFlag::TRUNCATION);
    reply.build_bytes_vec().ok()
}

fn bytes(reply: &DnsReply, query: &Packet<'_>) -> Option<Vec<u8>> {
    let mut packet = query.clone().into_reply();
    match reply {
        DnsReply::Records(records, ttl) => {
            let name = packet.questions[0].qname.clone();
            for (priority, weight, port, target) in records {
                let target = Name::new(target).unwrap();
                let srv = SRV { priority: *priority, weight: *weight, port: *port, target };
                packet.answers.push(ResourceRecord::new(name.clone(), CLASS::IN, *ttl, RData::SRV(srv)));
            }
        }
        DnsReply::NoName => *packet.rcode_mut() = RCODE::NameError,
        DnsReply::Failure => *packet.rcode_mut() = RCODE::ServerFailure,
        DnsReply::Bytes(bytes) => return Some([&query.id().to_be_bytes(), &bytes[..]].concat()),
        DnsReply::Silence | DnsReply::CutOff => return None,
    }
    packet.build_bytes_vec_compressed().ok()
}
