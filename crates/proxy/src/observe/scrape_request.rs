//! Parses requests for the metrics: as much of HTTP as a scrape needs.

/// The largest head of a request.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// What the bytes of a request mean so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScrapeRequest {
    /// The head is not complete.
    Incomplete,
    /// The head is larger than `HEAD_BYTES_MAX`.
    TooLarge,
    /// A request for the metrics.
    Metrics { is_open_metrics: bool },
    /// Whether the process serves at all.
    Health,
    /// Whether clients should be sent here.
    Ready,
    /// Any other request.
    Other,
}

impl ScrapeRequest {
    /// Parses the first request in these bytes.
    pub(crate) fn parse(bytes: &[u8]) -> ScrapeRequest {
        let Some(head) = head(bytes) else {
            let is_too_large = bytes.len() > HEAD_BYTES_MAX;
            return if is_too_large { ScrapeRequest::TooLarge } else { ScrapeRequest::Incomplete };
        };
        let text = String::from_utf8_lossy(head);
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let is_get = words.next() == Some("GET");
        let path = words.next().unwrap_or_default().split('?').next();
        let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
        match path {
            _ if !is_get || !is_http => return ScrapeRequest::Other,
            Some("/healthz") => return ScrapeRequest::Health,
            Some("/readyz") => return ScrapeRequest::Ready,
            Some("/metrics") => {}
            _ => return ScrapeRequest::Other,
        }
        let accepted =
            lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
        let is_open_metrics = accepted.into_iter().any(|(_, value)| value.contains("application/openmetrics-text"));
        ScrapeRequest::Metrics { is_open_metrics }
    }
}

/// The first bytes up to an empty line.
fn head(bytes: &[u8]) -> Option<&[u8]> {
    let ends = [&b"\n\r\n"[..], &b"\n\n"[..]];
    let end = ends.iter().filter_map(|end| bytes.windows(end.len()).position(|window| window == *end)).min()?;
    (end < HEAD_BYTES_MAX).then(|| &bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised_when_their_head_is_complete() {
        let head =
            "GET /metrics?debug=1 HTTP/1.1\r\nHost: a\r\naccept: text/plain, application/openmetrics-text\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(ScrapeRequest::parse(&head.as_bytes()[..end]), ScrapeRequest::Incomplete, "{end}");
        }
        let parse = |text: &str| ScrapeRequest::parse(text.as_bytes());
        assert_eq!(parse(head), ScrapeRequest::Metrics { is_open_metrics: true });
        assert_eq!(parse("GET /metrics HTTP/1.0\n\nGET"), ScrapeRequest::Metrics { is_open_metrics: false });
        assert_eq!(parse("GET /healthz HTTP/1.1\r\n\r\n"), ScrapeRequest::Health);
        assert_eq!(parse("GET /readyz?verbose HTTP/1.1\r\n\r\n"), ScrapeRequest::Ready);
        for other in
            ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "GET /metrics\r\n\r\n", "\n\n", "\0\n\r\n"]
        {
            assert_eq!(parse(other), ScrapeRequest::Other, "{other:?}");
        }
        for filler in ["x", "\n \r"] {
            assert_eq!(parse(&filler.repeat(HEAD_BYTES_MAX + 1)), ScrapeRequest::TooLarge);
        }
    }
}
