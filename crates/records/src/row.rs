//! One row: the facts about one request, or about one leg of it, when it ends.

/// The `leg` of a row for the whole request.
pub const PARENT: u8 = u8::MAX;
/// The `backend` of a request that the proxy answered without a backend.
pub const NO_BACKEND: u16 = u16::MAX;

/// The result of a request. The numbers are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// An ordinary reply: a hit or a miss, stored or not stored.
    #[default]
    Answered = 0,
    /// ERROR or CLIENT_ERROR.
    ClientError = 1,
    /// A SERVER_ERROR that the backend sent.
    ServerError = 2,
    /// The backend did not reply within the timeout.
    Timeout = 3,
    /// The backend was ejected or down, and the request was refused immediately.
    BackendDown = 4,
    /// The connection to the backend was lost, or its replies no longer matched, while the request waited.
    BackendLost = 5,
    /// A limit of the program was reached.
    Overloaded = 6,
    /// The reply could not be delivered to the client.
    ClientGone = 7,
}

/// The fields of a row, in file order, with their numpy types. docs/record-format.md describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "docs/record-format.md describes every field once, for both languages")]
pub struct Row {
    pub connection: u32,
    pub sequence: u32,
    pub request_bytes: u32,
    pub reply_bytes: u32,
    pub backend_sequence: u32,
    pub queue_length: u32,
    pub port: u16,
    pub backend_port: u16,
    pub backend: u16,
    pub keys: u16,
    pub hits: u16,
    pub r#loop: u8,
    pub operation: u8,
    pub outcome: u8,
    pub leg: u8,
    pub legs: u8,
    pub reserved: u8,
}

/// Names and little-endian numpy types of the fields, in file order.
pub const FIELDS: [(&str, &str); 17] = [
    ("connection", "u4"),
    ("sequence", "u4"),
    ("request_bytes", "u4"),
    ("reply_bytes", "u4"),
    ("backend_sequence", "u4"),
    ("queue_length", "u4"),
    ("port", "u2"),
    ("backend_port", "u2"),
    ("backend", "u2"),
    ("keys", "u2"),
    ("hits", "u2"),
    ("loop", "u1"),
    ("operation", "u1"),
    ("outcome", "u1"),
    ("leg", "u1"),
    ("legs", "u1"),
    ("reserved", "u1"),
];

/// The size of the fields of a row in bytes, without its stamps.
pub(crate) const FIELD_BYTES: usize = 40;

impl Outcome {
    /// Every outcome, in the order of its number.
    pub const ALL: [Outcome; 8] = [
        Outcome::Answered,
        Outcome::ClientError,
        Outcome::ServerError,
        Outcome::Timeout,
        Outcome::BackendDown,
        Outcome::BackendLost,
        Outcome::Overloaded,
        Outcome::ClientGone,
    ];

    /// The name in metrics and figures.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::ClientError => "client_error",
            Outcome::ServerError => "server_error",
            Outcome::Timeout => "timeout",
            Outcome::BackendDown => "backend_down",
            Outcome::BackendLost => "backend_lost",
            Outcome::Overloaded => "overloaded",
            Outcome::ClientGone => "client_gone",
        }
    }
}

impl Row {
    /// Appends the row and its stamps to `out`.
    pub(crate) fn encode(&self, stamps: &[u64], out: &mut Vec<u8>) {
        for field in [
            self.connection,
            self.sequence,
            self.request_bytes,
            self.reply_bytes,
            self.backend_sequence,
            self.queue_length,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.port, self.backend_port, self.backend, self.keys, self.hits] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&[self.r#loop, self.operation, self.outcome, self.leg, self.legs, self.reserved]);
        for stamp in stamps {
            out.extend_from_slice(&stamp.to_le_bytes());
        }
    }

    /// Decodes the row at the start of `bytes`, which must have at least [`FIELD_BYTES`].
    pub(crate) fn decode(bytes: &[u8]) -> Row {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Row {
            connection: word(0),
            sequence: word(4),
            request_bytes: word(8),
            reply_bytes: word(12),
            backend_sequence: word(16),
            queue_length: word(20),
            port: half(24),
            backend_port: half(26),
            backend: half(28),
            keys: half(30),
            hits: half(32),
            r#loop: bytes[34],
            operation: bytes[35],
            outcome: bytes[36],
            leg: bytes[37],
            legs: bytes[38],
            reserved: bytes[39],
        }
    }

    /// The values of the fields in the order of [`FIELDS`], for tables.
    pub fn values(&self) -> [u32; 17] {
        [
            self.connection,
            self.sequence,
            self.request_bytes,
            self.reply_bytes,
            self.backend_sequence,
            self.queue_length,
            self.port.into(),
            self.backend_port.into(),
            self.backend.into(),
            self.keys.into(),
            self.hits.into(),
            self.r#loop.into(),
            self.operation.into(),
            self.outcome.into(),
            self.leg.into(),
            self.legs.into(),
            self.reserved.into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_and_decoding_are_inverse() {
        let row = Row {
            connection: 1,
            sequence: 2,
            request_bytes: 3,
            reply_bytes: 4,
            backend_sequence: 5,
            queue_length: 6,
            port: 7,
            backend_port: 8,
            backend: 9,
            keys: 10,
            hits: 11,
            r#loop: 12,
            operation: 13,
            outcome: 14,
            leg: 15,
            legs: 16,
            reserved: 17,
        };
        let mut bytes = Vec::new();
        row.encode(&[18], &mut bytes);
        assert_eq!(bytes.len(), FIELD_BYTES + 8);
        assert_eq!(Row::decode(&bytes), row);
        assert_eq!(row.values().to_vec(), (1..=17).collect::<Vec<u32>>());
    }

    #[test]
    fn the_field_table_is_as_long_as_the_fields() {
        let bytes: usize = FIELDS.iter().map(|(_, kind)| kind[1..].parse::<usize>().unwrap()).sum();
        assert_eq!(bytes, FIELD_BYTES);
    }

    #[test]
    fn outcomes_are_numbered_in_order() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
