//! A client's byte stream. It reports to the `ClientConnection` how many bytes pass, and replaces the library's replies to refused heads.
//! The TCP connection below it is shared with `ClientSocket`.

use crate::http::client_connection::ClientConnection;
use crate::http::refusals;
use axum::body::Bytes;
use rustix::net::{Shutdown, shutdown};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A stream that reports reads and writes.
#[derive(Debug)]
pub(crate) struct ObservedStream<S> {
    pub(crate) stream: S,
    pub(crate) client: Arc<ClientConnection>,
    /// The reply that replaces one of the HTTP library, and the number of bytes that were written.
    pub(crate) refusal: Option<(Bytes, usize)>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            self.client.note_read(read);
        }
        polled
    }
}

impl<S> ObservedStream<S> {
    fn note(&self, polled: &Poll<io::Result<usize>>) {
        match polled {
            Poll::Ready(Ok(bytes)) => self.client.note_written(Some(*bytes)),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.client.note_written(None),
        }
    }
}

impl<S: AsyncWrite + Unpin> ObservedStream<S> {
    /// If these bytes are the reply with which the HTTP library refuses a head, writes a reply with a problem document instead. Otherwise
    /// returns none.
    fn poll_refusal(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.refusal.is_none() {
            let (status, reply) = refusals::replacement(bytes)?;
            // The body of a message can look like a refusal. The library refuses a head only between two replies.
            if self.client.has_unsent_reply() {
                return None;
            }
            self.client.note_refused_head(status);
            self.refusal = Some((reply, 0));
        }
        loop {
            let (reply, written) = self.refusal.as_mut()?;
            if *written == reply.len() {
                self.refusal = None;
                return Some(Poll::Ready(Ok(bytes.len())));
            }
            match Pin::new(&mut self.stream).poll_write(context, &reply[*written..]) {
                Poll::Ready(Ok(more)) if more > 0 => *written += more,
                other => return Some(other),
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(polled) = self.poll_refusal(context, bytes) {
            return polled;
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(polled) = self.poll_refusal(context, parts.first().map_or(&[], |part| part)) {
            return polled;
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        match polled {
            Poll::Ready(Ok(())) => self.client.note_flushed(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.client.note_written(None),
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A TCP connection with several owners.
#[derive(Debug)]
pub(crate) struct SharedStream(pub(crate) Arc<TcpStream>);

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let (room, mut read) = (buffer.remaining(), 0);
            let tried = self.0.try_io(Interest::READABLE, || {
                read = self.0.try_read_buf(buffer)?;
                // A read that did not fill the buffer has emptied the socket. The next read waits for an event.
                if read > 0 && read < room { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match tried {
                Err(error) if error.kind() == ErrorKind::WouldBlock && read == 0 => {}
                Err(error) if read == 0 => return Poll::Ready(Err(error)),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl SharedStream {
    fn poll_with(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.0, Shutdown::Write).map_err(Into::into))
    }
}
