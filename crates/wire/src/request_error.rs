//! Why a line is no request, and what its sender is told.

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The first word is no command.
    #[error("the command is unknown")]
    UnknownCommand,
    /// The command takes another number of words.
    #[error("the command has too few or too many words")]
    WrongWordCount,
    /// A word does not mean what its position demands.
    #[error("a word of the command line is not what belongs there")]
    BadLine,
    /// A key is longer than the limit, or holds a NUL.
    #[error("a key is too long or holds a NUL")]
    BadKey,
    /// A value does not end where its length says.
    #[error("the value does not end in \\r\\n where its announced length says")]
    BadDataChunk,
    /// A value is larger than the limit.
    #[error("the value is too large")]
    ValueTooLarge,
    /// An expiry time or a delay is no number, or less than nothing where that is meaningless.
    #[error("the expiry time or delay is not a number that can be used")]
    BadExptime,
    /// What is to be added is no number.
    #[error("the delta is not a whole number of 64 bits")]
    BadDelta,
    /// `delete` with more than a key.
    #[error("delete takes a key and perhaps noreply")]
    BadDelete,
    /// No line end for too long.
    #[error("the command line is too long")]
    LineTooLong,
    /// The same as it says, in a command that asked for no reply: nothing must be answered, or replies get out of step.
    #[error("{0}, and no reply was asked for")]
    Noreply(&'static RequestError),
}

impl RequestError {
    /// What the client is answered, line end included; nothing for a command that asked for no reply.
    pub fn line(&self) -> &'static [u8] {
        match self {
            RequestError::UnknownCommand | RequestError::WrongWordCount => b"ERROR\r\n",
            RequestError::BadLine | RequestError::BadKey => b"CLIENT_ERROR bad command line format\r\n",
            RequestError::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            RequestError::ValueTooLarge => b"SERVER_ERROR object too large for cache\r\n",
            RequestError::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            RequestError::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            RequestError::BadDelete => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            RequestError::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            RequestError::Noreply(_) => b"",
        }
    }

    /// What is wrong, whether a reply was asked for or not.
    pub fn reason(&self) -> RequestError {
        match self {
            RequestError::Noreply(reason) => **reason,
            reason => *reason,
        }
    }

    /// Whether nothing must be answered.
    pub fn noreply(&self) -> bool {
        matches!(self, RequestError::Noreply(_))
    }

    /// The error of a line that did or did not ask for a reply.
    pub(crate) fn answered_unless(noreply: bool, reason: &'static RequestError) -> RequestError {
        if noreply { RequestError::Noreply(reason) } else { *reason }
    }
}
