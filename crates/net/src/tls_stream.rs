//! TLS over a TCP socket, within readiness: nothing waits, neither for a handshake nor for a record that has come in part.

use crate::inbox::{Buffers, Filled, Inbox};
use crate::outbox::Outbox;
use mio::net::TcpStream;
use std::io::{self, Read};
use std::net::Shutdown;

/// The socket and what makes TLS of it.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) socket: TcpStream,
    session: rustls::Connection,
    /// Whether the kernel took no more, so that the next write must wait for readiness.
    is_blocked: bool,
    /// Bytes of the outbox that are encrypted and have not all left.
    in_session: usize,
    has_said_goodbye: bool,
}

impl TlsStream {
    /// Over a socket that is connected, or being connected.
    pub(crate) fn new(socket: TcpStream, session: rustls::Connection, is_blocked: bool) -> TlsStream {
        TlsStream { socket, session, is_blocked, in_session: 0, has_said_goodbye: false }
    }

    /// Whether the two sides have not agreed yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Takes note of room to write. True when something of TLS itself waits for it, so that a read must look after it.
    pub(crate) fn on_writable(&mut self) -> bool {
        self.is_blocked = false;
        self.session.is_handshaking() || self.session.wants_write()
    }

    /// Reads until nothing is left or `budget_bytes` have come in, and answers what belongs to TLS itself.
    pub(crate) fn fill(
        &mut self,
        inbox: &mut Inbox,
        readable: &mut bool,
        closing: bool,
        buffers: &mut Buffers,
        budget_bytes: usize,
    ) -> io::Result<Filled> {
        if !self.is_blocked {
            self.push()?;
        }
        let mut cipher = buffers.take();
        let filled = self.fill_through(&mut cipher, inbox, readable, closing, buffers, budget_bytes);
        buffers.give(cipher);
        filled
    }

    fn fill_through(
        &mut self,
        cipher: &mut [u8],
        inbox: &mut Inbox,
        readable: &mut bool,
        closing: bool,
        buffers: &mut Buffers,
        budget_bytes: usize,
    ) -> io::Result<Filled> {
        let mut taken = 0;
        while *readable {
            match self.socket.read(cipher) {
                Ok(0) => {
                    // Requests and replies say themselves where they end, so an end without a goodbye cuts nothing off unseen.
                    *readable = false;
                    return Ok(Filled::Closed);
                }
                Ok(count) => {
                    taken += count;
                    if self.decrypt(&cipher[..count], inbox, buffers)? {
                        *readable = false;
                        return Ok(Filled::Closed);
                    }
                    // A short read means that the socket is empty (epoll(7)), unless it ends.
                    if count < cipher.len() && !closing {
                        *readable = false;
                    } else if taken >= budget_bytes {
                        return Ok(Filled::More);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => *readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Filled::Drained)
    }

    /// Makes plain bytes of what has come; true when the peer has said that nothing more will.
    fn decrypt(&mut self, mut cipher: &[u8], inbox: &mut Inbox, buffers: &mut Buffers) -> io::Result<bool> {
        let mut is_over = false;
        while !cipher.is_empty() && !is_over {
            self.session.read_tls(&mut cipher)?;
            let state = self.session.process_new_packets().map_err(|error| {
                // The peer is told why, if the kernel takes it.
                let _ = self.session.write_tls(&mut self.socket);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let mut waiting = state.plaintext_bytes_to_read();
            while waiting > 0 {
                let count = self.session.reader().read(inbox.room(buffers))?;
                inbox.advance(count);
                waiting -= count;
            }
            is_over = state.peer_has_closed();
        }
        if !self.is_blocked {
            self.push()?;
        }
        Ok(is_over)
    }

    /// Writes what is encrypted; true when all of it has left.
    fn push(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Encrypts and writes until everything is written or the kernel takes no more; true when everything is.
    /// What is encrypted counts as written when its last byte has left.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        while !self.is_blocked && self.push()? {
            outbox.written(std::mem::take(&mut self.in_session));
            if outbox.is_empty() {
                return Ok(true);
            }
            if self.session.is_handshaking() {
                return Ok(false);
            }
            self.in_session = outbox.write_once(&mut self.session.writer())?;
            if self.in_session == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(false)
    }

    /// Says that nothing more will be sent, and closes that direction when that has left. To be tried again when there is room.
    pub(crate) fn end_writing(&mut self) {
        if self.say_goodbye() {
            // A connection that is broken already needs no end.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    fn say_goodbye(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_said_goodbye, true) {
            self.session.send_close_notify();
        }
        matches!(self.push(), Ok(true))
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if !self.session.is_handshaking() {
            self.say_goodbye();
        }
    }
}
