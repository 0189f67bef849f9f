//! What a client says and how it knows the answer, for each of the systems: bytes in, bytes out. Knows no sockets and no time.

/// Body of a message; a string of JSON for the one system that takes nothing else.
const BODY_BYTES: usize = 200;

/// What the client does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The answer is not complete.
    Read,
    /// One message is done, and these many bytes of input with it.
    Done(usize),
    /// There is no message.
    Empty,
    /// A second command belongs to the same message; so many bytes of input are used up.
    Say(usize, Vec<u8>),
    /// Something else was said.
    Wrong(String),
}

/// A way to send or to take out one message.
#[derive(Clone, Debug)]
pub(crate) enum Talk {
    /// This request, and the status of its success.
    Http { request: Vec<u8>, wanted: u16 },
    /// beanstalkd: put.
    Put,
    /// beanstalkd: reserve and then delete, since it has no command for both.
    ReserveAndDelete,
}

impl Talk {
    /// `service:send`, `pgmq:pop`, `beanstalkd:send` and so on.
    pub(crate) fn named(name: &str) -> Result<Talk, String> {
        let raw = vec![b'x'; BODY_BYTES];
        let text = format!("\"{}\"", "x".repeat(BODY_BYTES - 2)).into_bytes();
        Ok(match name {
            "service:send" => post("/v1/queues/q/messages", "waystage-sender: s\r\n", &raw, 201),
            "service:pop" => post("/v1/queues/q/messages:pop", "", &[], 200),
            "plain:send" => post("/plain", "", &raw, 201),
            "plain:pop" => post("/plain:pop", "", &[], 200),
            "pgmq:send" => post("/pgmq", "", &text, 201),
            "pgmq:pop" => post("/pgmq:pop", "", &[], 200),
            "beanstalkd:send" => Talk::Put,
            "beanstalkd:pop" => Talk::ReserveAndDelete,
            _ => return Err(format!("there is no {name}")),
        })
    }

    /// The first bytes of each round.
    pub(crate) fn opening(&self) -> Vec<u8> {
        match self {
            Talk::Http { request, .. } => request.clone(),
            Talk::Put => {
                let mut command = format!("put 0 0 60 {BODY_BYTES}\r\n").into_bytes();
                command.resize(command.len() + BODY_BYTES, b'x');
                command.extend_from_slice(b"\r\n");
                command
            }
            Talk::ReserveAndDelete => b"reserve-with-timeout 0\r\n".to_vec(),
        }
    }

    /// Looks at what has come in.
    pub(crate) fn next(&self, input: &[u8]) -> Next {
        match self {
            Talk::Http { wanted, .. } => http(input, *wanted),
            Talk::Put | Talk::ReserveAndDelete => beanstalkd(input),
        }
    }
}

fn post(path: &str, headers: &str, body: &[u8], wanted: u16) -> Talk {
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n", body.len());
    Talk::Http { request: [head.as_bytes(), body].concat(), wanted }
}

fn http(input: &[u8], wanted: u16) -> Next {
    let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") else { return Next::Read };
    let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let whole = end + 4 + length.unwrap_or(0);
    match status {
        _ if input.len() < whole => Next::Read,
        204 => Next::Empty,
        status if status == wanted => Next::Done(whole),
        _ => Next::Wrong(String::from_utf8_lossy(input).into_owned()),
    }
}

fn beanstalkd(input: &[u8]) -> Next {
    let Some(end) = input.windows(2).position(|window| window == b"\r\n") else { return Next::Read };
    let line = String::from_utf8_lossy(&input[..end]).into_owned();
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["INSERTED", _] | ["DELETED"] => Next::Done(end + 2),
        ["TIMED_OUT"] => Next::Empty,
        ["RESERVED", id, bytes] => {
            let whole = end + 2 + bytes.parse::<usize>().unwrap_or(0) + 2;
            if input.len() < whole { Next::Read } else { Next::Say(whole, format!("delete {id}\r\n").into_bytes()) }
        }
        _ => Next::Wrong(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_known_when_they_are_whole() {
        let reply = b"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":7}";
        assert_eq!(http(reply, 201), Next::Done(reply.len()));
        assert_eq!(http(&reply[..reply.len() - 1], 201), Next::Read);
        assert_eq!(http(b"HTTP/1.1 204 No Content\r\n\r\n", 200), Next::Empty);
        assert!(matches!(http(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", 201), Next::Wrong(_)));
        assert_eq!(beanstalkd(b"INSERTED 5\r\n"), Next::Done(12));
        assert_eq!(beanstalkd(b"RESERVED 5 2\r\nab\r"), Next::Read);
        assert_eq!(beanstalkd(b"RESERVED 5 2\r\nab\r\n"), Next::Say(18, b"delete 5\r\n".to_vec()));
    }
}
