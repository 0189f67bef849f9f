//! The driver with epoll: edge-triggered, interest registered once, one `recv` for each readable connection and one `send` for each
//! that has output, as in the proxy.

use crate::relay::Relay;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};

const LISTENER: Token = Token(usize::MAX);
const EVENTS_PER_WAIT: usize = 1024;
const BUFFER_BYTES: usize = 32 * 1024;

/// Relays until an error.
pub fn run(mut relay: Relay, listener: std::net::TcpListener, servers: Vec<std::net::TcpStream>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut streams = Vec::new();
    for server in servers {
        server.set_nonblocking(true)?;
        add(&poll, &mut streams, TcpStream::from_std(server), |streams| streams.len())?;
    }
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut dirty = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        relay.counts.turns += 1;
        for event in &events {
            let Token(place) = event.token();
            if event.token() == LISTENER {
                accept(&poll, &listener, &mut streams, &mut relay)?;
                continue;
            }
            if event.is_writable() && !relay.output(place).is_empty() {
                relay.mark_dirty(place);
            }
            if event.is_readable() {
                receive(&mut streams, place, &mut relay, &mut buffer);
            }
        }
        relay.take_dirty(&mut dirty);
        for &place in &dirty {
            send(&mut streams, place, &mut relay);
        }
    }
}

/// Registers a stream and puts it into the place that `place` chooses.
fn add(
    poll: &Poll,
    streams: &mut Vec<Option<TcpStream>>,
    mut stream: TcpStream,
    place: impl FnOnce(&[Option<TcpStream>]) -> usize,
) -> io::Result<()> {
    let place = place(streams);
    poll.registry().register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE)?;
    if place == streams.len() {
        streams.push(None);
    }
    streams[place] = Some(stream);
    Ok(())
}

fn accept(
    poll: &Poll,
    listener: &TcpListener,
    streams: &mut Vec<Option<TcpStream>>,
    relay: &mut Relay,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                add(poll, streams, stream, |_| relay.add_client())?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn receive(streams: &mut [Option<TcpStream>], place: usize, relay: &mut Relay, buffer: &mut [u8]) {
    while let Some(stream) = &mut streams[place] {
        match stream.read(buffer) {
            Ok(count) if count > 0 => {
                relay.receive(place, &buffer[..count]);
                // Fewer bytes than there was room for: the socket is empty.
                if count < buffer.len() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => {
                streams[place] = None;
                relay.remove(place);
            }
        }
    }
}

fn send(streams: &mut [Option<TcpStream>], place: usize, relay: &mut Relay) {
    let Some(stream) = &mut streams[place] else { return };
    relay.counts.sends += 1;
    let output = relay.output(place);
    // What is not written follows when the socket is writable. A broken connection is found by the next read.
    if let Ok(count) = stream.write(output) {
        output.drain(..count);
    }
}
