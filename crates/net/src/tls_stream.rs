//! TLS over a non-blocking TCP socket: neither a handshake nor an incomplete record blocks.

use crate::inbox::{Buffers, Filled, Inbox};
use crate::outbox::Outbox;
use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, BufRead};
use std::net::Shutdown;

/// The socket and its TLS session.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) socket: TcpStream,
    session: rustls::Connection,
    /// Whether the last write was refused (EAGAIN), so that the next one must wait for readiness.
    is_blocked: bool,
    /// Bytes of the outbox that are encrypted but not completely written.
    in_session: usize,
    has_sent_close_notify: bool,
}

impl TlsStream {
    /// TLS over a socket that is connected or connecting.
    pub(crate) fn new(socket: TcpStream, session: rustls::Connection, is_blocked: bool) -> TlsStream {
        TlsStream { socket, session, is_blocked, in_session: 0, has_sent_close_notify: false }
    }

    /// Whether the handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Records readiness to write. True if TLS itself has something to write, which the next read does.
    pub(crate) fn on_writable(&mut self) -> bool {
        self.is_blocked = false;
        self.session.is_handshaking() || self.session.wants_write()
    }

    /// Reads until the socket is empty or `budget_bytes` have been read, and writes what the TLS protocol requires.
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
        cipher: &mut Vec<u8>,
        inbox: &mut Inbox,
        readable: &mut bool,
        closing: bool,
        buffers: &mut Buffers,
        budget_bytes: usize,
    ) -> io::Result<Filled> {
        let mut taken = 0;
        while *readable {
            cipher.clear();
            match recv(&self.socket, spare_capacity(cipher), RecvFlags::empty()) {
                Ok((0, _)) => {
                    // Requests and replies are delimited, so a close without close_notify cannot truncate one unnoticed.
                    *readable = false;
                    return Ok(Filled::Closed);
                }
                Ok((count, _)) => {
                    taken += count;
                    if self.decrypt(cipher, inbox, buffers)? {
                        *readable = false;
                        return Ok(Filled::Closed);
                    }
                    // A short read means that the socket is empty (epoll(7)), except at the end of the stream.
                    if count < cipher.capacity() && !closing {
                        *readable = false;
                    } else if taken >= budget_bytes {
                        return Ok(Filled::More);
                    }
                }
                Err(Errno::AGAIN) => *readable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Filled::Drained)
    }

    /// Decrypts received bytes; true if the peer has sent close_notify.
    fn decrypt(&mut self, mut cipher: &[u8], inbox: &mut Inbox, buffers: &mut Buffers) -> io::Result<bool> {
        let mut is_over = false;
        while !cipher.is_empty() && !is_over {
            self.session.read_tls(&mut cipher)?;
            let state = self.session.process_new_packets().map_err(|error| {
                // Sends the alert to the peer, if the kernel accepts it.
                let _ = self.session.write_tls(&mut self.socket);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let mut waiting = state.plaintext_bytes_to_read();
            while waiting > 0 {
                let room = inbox.room(buffers);
                let mut reader = self.session.reader();
                let plain = reader.fill_buf()?;
                let count = plain.len().min(room.capacity() - room.len());
                room.extend_from_slice(&plain[..count]);
                reader.consume(count);
                waiting -= count;
            }
            is_over = state.peer_has_closed();
        }
        if !self.is_blocked {
            self.push()?;
        }
        Ok(is_over)
    }

    /// Writes encrypted bytes; true if all have been written.
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

    /// Encrypts and writes until the outbox is empty or the kernel accepts no more; true if it is empty.
    /// A byte counts as written once the last byte of its record has been written.
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

    /// Sends close_notify and then shuts down the sending side. Call it again when there is room to write.
    pub(crate) fn end_writing(&mut self) {
        if self.send_close_notify() {
            // Shutting down a broken connection fails, which does not matter.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    fn send_close_notify(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_sent_close_notify, true) {
            self.session.send_close_notify();
        }
        matches!(self.push(), Ok(true))
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if !self.session.is_handshaking() {
            self.send_close_notify();
        }
    }
}
