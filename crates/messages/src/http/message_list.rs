//! The JSON document of several messages as a response body. A piece is built when the client has read the previous one, and counts as
//! memory until it is written. So for a slow client, the service stores the unread messages and at most one piece of the document.

use crate::interface::documents::{MessageDocument, Messages};
use crate::path::memory::Reservation;
use crate::path::work::Message;
use axum::body::{Bytes, HttpBody};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A piece ends after the message with which it reaches this size.
const PIECE_BYTES: usize = 64 << 10;

/// The part of the document that has not been built yet.
#[derive(Debug)]
pub(crate) struct MessageList {
    /// The messages, each with the size of its JSON.
    messages: VecDeque<(Message, usize)>,
    /// What precedes the next message.
    before: Vec<u8>,
    after: Vec<u8>,
    left_bytes: usize,
    reservation: Reservation,
}

impl MessageList {
    /// The reservation covers the bodies of the messages.
    pub(crate) fn new(messages: Vec<Message>, reservation: Reservation) -> MessageList {
        let mut before = json(&Messages { messages: Vec::new() });
        let after = before.split_off(before.len() - 2);
        let sized = |message: Message| {
            let bytes = json_bytes(&document(&message, String::new()));
            let body = base64::encoded_len(message.body.len(), true).unwrap_or(usize::MAX);
            (message, bytes + body)
        };
        let messages: VecDeque<_> = messages.into_iter().map(sized).collect();
        let commas = messages.len().saturating_sub(1);
        let texts: usize = messages.iter().map(|(_, bytes)| bytes).sum();
        let left_bytes = before.len() + texts + commas + after.len();
        MessageList { messages, before, after, left_bytes, reservation }
    }

    fn next_piece(&mut self) -> Bytes {
        let (mut number, mut held_bytes, mut made_bytes) = (0, 0, self.after.len());
        for (message, bytes) in &self.messages {
            if made_bytes > PIECE_BYTES {
                break;
            }
            number += 1;
            held_bytes += message.body.len();
            made_bytes += bytes + 1;
        }
        let (messages, before, after) = (&mut self.messages, &mut self.before, &self.after);
        let piece = self.reservation.replace(held_bytes, made_bytes + before.len(), || {
            let mut piece = Vec::with_capacity(made_bytes + before.len());
            for (message, _) in messages.drain(..number) {
                piece.append(before);
                before.push(b',');
                let body = STANDARD.encode(&message.body);
                // Writing into memory cannot fail.
                let _ = serde_json::to_writer(&mut piece, &document(&message, body));
            }
            if messages.is_empty() {
                if number == 0 {
                    piece.append(before);
                }
                piece.extend_from_slice(after);
            }
            piece
        });
        self.left_bytes -= piece.as_ref().len();
        Bytes::from_owner(piece)
    }
}

impl HttpBody for MessageList {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left_bytes == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes as u64)
    }
}

/// The message as a document, with this text as its body.
fn document(message: &Message, body_base64: String) -> MessageDocument<'_> {
    let leased = message.lease.as_ref();
    MessageDocument {
        id: message.id,
        queue: &message.queue,
        sender: &message.sender,
        receiver: (!message.receiver.is_empty()).then_some(message.receiver.as_str()),
        sent_unix_us: message.sent_unix_us,
        body_base64,
        dead_letter: message.dead_letter.as_ref(),
        lease_token: leased.map(|leased| leased.token.to_string()),
        attempt: leased.map(|leased| leased.attempt),
    }
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // Serializing plain structs with string keys cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The size of a value as JSON.
pub(super) fn json_bytes(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::lease::{Lease, LeaseToken};
    use crate::path::memory::{Memory, Share};
    use std::future::poll_fn;
    use std::sync::Arc;

    fn message(id: i64, bytes: usize) -> Message {
        let token = LeaseToken::new(1, id, "0".repeat(32));
        let (queue, sender, receiver) = ("q".into(), "al\"ice".into(), if id == 1 { "bob" } else { "" }.into());
        let body = vec![b'x'; bytes];
        Message {
            id,
            queue,
            sender,
            receiver,
            sent_unix_us: 7,
            body,
            dead_letter: None,
            lease: Some(Lease { token, attempt: 1 }),
        }
    }

    #[tokio::test]
    async fn pieces_are_the_announced_document_and_count_until_they_are_dropped() {
        let memory = Arc::new(Memory::new(1 << 20));
        let share = Arc::new(Share::default());
        for sizes in [vec![], vec![0], vec![5, 3], vec![100_000, 1, 70_000, 2]] {
            let messages: Vec<Message> = (1..).zip(&sizes).map(|(id, bytes)| message(id, *bytes)).collect();
            let documents = messages.iter().map(|message| document(message, STANDARD.encode(&message.body))).collect();
            let expected = json(&Messages { messages: documents });
            let held: usize = sizes.iter().sum();
            let reservation = memory.reserve_reply(&share, held);
            let mut list = MessageList::new(messages.clone(), reservation);
            assert_eq!(list.size_hint().exact(), Some(expected.len() as u64));
            let (mut text, mut pieces) = (Vec::new(), Vec::new());
            while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut list).poll_frame(context)).await {
                let piece = frame.into_data().unwrap();
                text.extend_from_slice(&piece);
                pieces.push(piece);
                assert!(memory.reserved_bytes() >= pieces.iter().map(Bytes::len).sum());
            }
            assert_eq!(String::from_utf8(text).unwrap(), String::from_utf8(expected).unwrap());
            assert!(list.is_end_stream() && pieces.len() <= 3, "{} pieces", pieces.len());
            drop((list, pieces));
            assert_eq!(memory.reserved_bytes(), 0);
        }
    }
}
