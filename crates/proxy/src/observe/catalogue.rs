//! The definitions of all metrics: name, kind, labels and help text. Tests enforce that the metrics page shows exactly these, and
//! that docs/metrics.md has a line for each. A label that all backends or requests share is added in `labels`, and to the lists here.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Never decreases while the process runs.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts below bounds, with the sum and the number of values.
    Histogram,
}

/// The definition of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    /// The name in Prometheus. That of a counter ends in `_total`, with the unit before it.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Definition {
    Definition { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Definition {
    Definition { name, kind: MetricKind::Gauge, labels, help }
}

/// The labels of a count by operation.
const REQUEST: &[&str] = &["operation"];
/// The labels of a backend.
const BACKEND: &[&str] = &["pool", "backend"];
/// The labels of a pool.
const POOL: &[&str] = &["pool"];
/// The labels of a queue of one loop.
const QUEUE: &[&str] = &["loop", "queue"];

/// All metrics, in the order of the page.
pub(crate) const ALL: [&Definition; 92] = [
    &STAGE,
    &REQUESTS,
    &KEYS,
    &HITS,
    &MISSES,
    &CAS_CONFLICTS,
    &COMMANDS_REFUSED,
    &PARTS_FAILED,
    &RECEIVED_BYTES,
    &REPLIED_BYTES,
    &CLIENTS,
    &CLIENTS_MAX,
    &CLIENTS_ACCEPTED,
    &CLIENTS_REFUSED,
    &CLIENTS_REFUSED_ADDRESS,
    &CLIENTS_REFUSED_BINARY,
    &CLIENTS_TLS_FAILED,
    &CLIENTS_AUTHENTICATED,
    &CLIENTS_AUTH_FAILED,
    &CLIENTS_UNAUTHENTICATED,
    &CLIENTS_REFUSED_RELAY,
    &CLIENTS_HEADER_FAILED,
    &CLIENTS_PAUSED,
    &CLIENTS_CLOSED,
    &HELD_BYTES,
    &REPLIES_DROPPED,
    &READS_REPEATED,
    &REPLIES_REFUSED,
    &VALUES_REFUSED,
    &ACCEPT_PAUSES,
    &ORDER_WAITS,
    &POOL_REQUESTS,
    &FAILOVERS,
    &HEDGES,
    &HEDGES_WON,
    &FAILOVER_POOL_REQUESTS,
    &WARM_UP_HITS,
    &WARM_UP_FILLS,
    &SHADOWED,
    &WRITES_DEGRADED,
    &WITHHELD_READS,
    &RATE_LIMITED,
    &NEAR_CACHE_HITS,
    &SERVER_LIST_CHANGES,
    &SERVER_LIST_FAILURES,
    &BACKEND_UP,
    &BACKEND_DRAINED,
    &BACKEND_EJECTED,
    &BACKEND_EJECTIONS,
    &BACKEND_CONNECTIONS_UP,
    &BACKEND_CONNECTIONS_OPENED,
    &BACKEND_CONNECTIONS_LOST,
    &BACKEND_REQUESTS,
    &BACKEND_BULK_REQUESTS,
    &BACKEND_REPLIES,
    &BACKEND_LATE_REPLIES,
    &BACKEND_CARRIED_OVER,
    &BACKEND_ERRORS,
    &BACKEND_IN_FLIGHT,
    &BACKEND_SENT_BYTES,
    &BACKEND_RECEIVED_BYTES,
    &BACKEND_TLS_FAILED,
    &BACKEND_MOVES,
    &BACKEND_LOOKUPS_FAILED,
    &BACKEND_INVALIDATIONS_PENDING,
    &BACKEND_INVALIDATIONS_SENT,
    &BACKEND_INVALIDATIONS_FAILED,
    &QUEUE_LENGTH,
    &QUEUE_FULL,
    &SLOTS_BUSY,
    &HOT_KEY_RATE,
    &HOT_KEY_ERROR,
    &HOT_KEYS_RATE,
    &RECORDS_DROPPED,
    &SLOW_REQUESTS,
    &LOG_LINES,
    &LOG_LINES_LOST,
    &TRACES_EXPORTED,
    &TRACES_DROPPED,
    &TRACES_FAILED,
    &TRACE_SPANS_REJECTED,
    &TRACE_ATTEMPTS_FAILED,
    &SCRAPE_STALE_LOOPS,
    &SCRAPES,
    &METRICS_CONNECTIONS_CLOSED,
    &LOOPS,
    &BUILD_INFO,
    &PROCESS_START_TIME,
    &PROCESS_CPU,
    &PROCESS_MEMORY,
    &PROCESS_OPEN_FILES,
    &PROCESS_MAX_FILES,
];

pub(crate) const STAGE: Definition = Definition {
    name: "waystage_stage_seconds",
    kind: MetricKind::Histogram,
    labels: &["operation", "stage"],
    help: "Time of requests in each stage; the stage total is their whole time in the proxy",
};
pub(crate) const REQUESTS: Definition =
    counter("waystage_requests_total", &["operation", "outcome"], "Finished requests");
pub(crate) const KEYS: Definition = counter("waystage_keys_total", &[], "Keys in requests that read values");
pub(crate) const HITS: Definition =
    counter("waystage_hits_total", REQUEST, "Keys that a backend found, in operations that need an existing value");
pub(crate) const MISSES: Definition =
    counter("waystage_misses_total", REQUEST, "Keys that a backend did not find, in the same operations");
pub(crate) const CAS_CONFLICTS: Definition =
    counter("waystage_cas_conflicts_total", &[], "cas commands that failed because the value had changed");
pub(crate) const COMMANDS_REFUSED: Definition = counter(
    "waystage_commands_refused_total",
    &[],
    "Requests refused because the listener of the client does not allow their command",
);
pub(crate) const PARTS_FAILED: Definition = counter(
    "waystage_parts_failed_total",
    &[],
    "Multi-gets, or groups of keys of long ones, in which the part of one backend failed",
);
pub(crate) const RECEIVED_BYTES: Definition =
    counter("waystage_received_bytes_total", &[], "Bytes of requests from clients");
pub(crate) const REPLIED_BYTES: Definition =
    counter("waystage_replied_bytes_total", &[], "Bytes of replies to clients");
pub(crate) const CLIENTS: Definition = gauge("waystage_clients", &[], "Connected clients");
pub(crate) const CLIENTS_MAX: Definition = gauge("waystage_clients_max", &[], "Largest number of connected clients");
pub(crate) const CLIENTS_ACCEPTED: Definition =
    counter("waystage_clients_accepted_total", &[], "Client connections accepted");
pub(crate) const CLIENTS_REFUSED: Definition =
    counter("waystage_clients_refused_total", &[], "Client connections closed at once because the limit was reached");
pub(crate) const CLIENTS_REFUSED_ADDRESS: Definition = counter(
    "waystage_clients_refused_address_total",
    &[],
    "Client connections closed at once because their address had too many",
);
pub(crate) const CLIENTS_REFUSED_BINARY: Definition = counter(
    "waystage_clients_refused_binary_total",
    &[],
    "Client connections closed because they began with a request of the binary protocol",
);
pub(crate) const CLIENTS_AUTHENTICATED: Definition =
    counter("waystage_clients_authenticated_total", &[], "Client connections that have authenticated");
pub(crate) const CLIENTS_AUTH_FAILED: Definition = counter(
    "waystage_clients_auth_failed_total",
    &[],
    "Attempts of clients to authenticate with a wrong user or password",
);
pub(crate) const CLIENTS_UNAUTHENTICATED: Definition = counter(
    "waystage_clients_unauthenticated_total",
    &[],
    "Lines from clients that were refused because the client had not authenticated",
);
pub(crate) const CLIENTS_REFUSED_RELAY: Definition = counter(
    "waystage_clients_refused_relay_total",
    &[],
    "Client connections closed at once because their address is not in proxy-protocol-from",
);
pub(crate) const CLIENTS_HEADER_FAILED: Definition = counter(
    "waystage_clients_header_failed_total",
    &[],
    "Client connections closed because they did not begin with a header of the PROXY protocol, or not in time",
);
pub(crate) const CLIENTS_PAUSED: Definition = counter(
    "waystage_clients_paused_total",
    &[],
    "Times that the proxy stopped reading from a client because too much was in flight or unread",
);
pub(crate) const CLIENTS_CLOSED: Definition = counter(
    "waystage_clients_closed_total",
    &["reason"],
    "Client connections closed by a timeout: idle, with an unfinished request, or with unread replies",
);
pub(crate) const HELD_BYTES: Definition =
    gauge("waystage_held_bytes", &[], "Bytes held for clients: replies, input, and requests in flight");
pub(crate) const REPLIES_DROPPED: Definition = counter(
    "waystage_replies_dropped_total",
    &[],
    "Replies dropped because the client or the proxy held too many bytes",
);
pub(crate) const READS_REPEATED: Definition =
    counter("waystage_reads_repeated_total", &[], "Requests sent again because their reply was dropped");
pub(crate) const REPLIES_REFUSED: Definition = counter(
    "waystage_replies_refused_total",
    &["reason"],
    "Dropped replies that were not read again: the proxy was full, or a later write had been sent",
);
pub(crate) const VALUES_REFUSED: Definition =
    counter("waystage_values_refused_total", &[], "Values of clients refused because the proxy held too many bytes");
pub(crate) const ACCEPT_PAUSES: Definition =
    counter("waystage_accept_pauses_total", &[], "Pauses in accepting because the kernel had no file descriptor left");
pub(crate) const CLIENTS_TLS_FAILED: Definition =
    counter("waystage_clients_tls_failed_total", &[], "Client connections on which TLS failed");
pub(crate) const BACKEND_TLS_FAILED: Definition =
    counter("waystage_backend_tls_failed_total", BACKEND, "Connections to the backend on which TLS failed");
pub(crate) const BACKEND_MOVES: Definition =
    counter("waystage_backend_moves_total", BACKEND, "Times that the proxy changed to another address of the backend");
pub(crate) const BACKEND_LOOKUPS_FAILED: Definition =
    counter("waystage_backend_lookups_failed_total", BACKEND, "Name resolutions of the backend that found no address");
pub(crate) const ORDER_WAITS: Definition =
    counter("waystage_order_waits_total", &[], "Times that a request waited for earlier requests of its client");
pub(crate) const POOL_REQUESTS: Definition = counter(
    "waystage_pool_requests_total",
    &["pool", "kind"],
    "Requests that read or write keys of the pool, including shadowed requests that it receives",
);
pub(crate) const FAILOVERS: Definition = counter(
    "waystage_failovers_total",
    POOL,
    "Times that a read went to the next replica because a replica was down, withheld, failed or had no value",
);
pub(crate) const HEDGES: Definition =
    counter("waystage_hedges_total", POOL, "Reads sent to a second replica because the first one was slow");
pub(crate) const HEDGES_WON: Definition =
    counter("waystage_hedges_won_total", POOL, "Hedged reads that the second replica answered first");
pub(crate) const FAILOVER_POOL_REQUESTS: Definition =
    counter("waystage_failover_pool_requests_total", POOL, "Requests sent to the failover pool instead of the pool");
pub(crate) const WARM_UP_HITS: Definition =
    counter("waystage_warm_up_hits_total", POOL, "Keys that the pool did not have and the warm-up pool had");
pub(crate) const WARM_UP_FILLS: Definition =
    counter("waystage_warm_up_fills_total", POOL, "Values from the warm-up pool that the pool has stored");
pub(crate) const SHADOWED: Definition =
    counter("waystage_shadowed_requests_total", POOL, "Requests that were also sent to the shadow pool");
pub(crate) const WRITES_DEGRADED: Definition = counter(
    "waystage_degraded_writes_total",
    POOL,
    "Writes acknowledged by enough replicas, while another replica missed them",
);
pub(crate) const WITHHELD_READS: Definition = counter(
    "waystage_withheld_reads_total",
    POOL,
    "Reads, or parts of multi-gets, not sent because an invalidation of the key is pending at the backend",
);
pub(crate) const RATE_LIMITED: Definition =
    counter("waystage_rate_limited_total", POOL, "Requests refused because the pool had reached its rate limit");
pub(crate) const NEAR_CACHE_HITS: Definition = counter(
    "waystage_near_cache_hits_total",
    POOL,
    "Requests for a hot key answered from the near-cache, without a server",
);
pub(crate) const SERVER_LIST_CHANGES: Definition = counter(
    "waystage_server_list_changes_total",
    POOL,
    "Times that the pool got other servers, because its servers-file, its SRV records or the addresses of a name had changed",
);
pub(crate) const SERVER_LIST_FAILURES: Definition = counter(
    "waystage_server_list_failures_total",
    POOL,
    "Problems with the servers-file, the SRV records or the names of the pool, because of which it kept its last servers",
);
pub(crate) const BACKEND_EJECTED: Definition = gauge(
    "waystage_backend_ejected",
    BACKEND,
    "Event loops that have no connection to the backend that accepts requests",
);
pub(crate) const BACKEND_EJECTIONS: Definition = counter(
    "waystage_backend_ejections_total",
    BACKEND,
    "Times that an event loop lost its last connection to the backend that accepted requests",
);
pub(crate) const BACKEND_INVALIDATIONS_PENDING: Definition = gauge(
    "waystage_backend_invalidations_pending",
    BACKEND,
    "Invalidations pending at the backend; one of all keys counts as one",
);
pub(crate) const BACKEND_INVALIDATIONS_SENT: Definition = counter(
    "waystage_backend_invalidations_sent_total",
    BACKEND,
    "Pending invalidations that the backend has answered",
);
pub(crate) const BACKEND_INVALIDATIONS_FAILED: Definition = counter(
    "waystage_backend_invalidations_failed_total",
    BACKEND,
    "Pending invalidations that were sent and failed; they are sent again",
);
pub(crate) const BACKEND_UP: Definition =
    gauge("waystage_backend_up", BACKEND, "Whether at least one connection to the backend accepts requests");
pub(crate) const BACKEND_DRAINED: Definition =
    gauge("waystage_backend_drained", BACKEND, "Whether the backend is drained, so that it receives no requests");
pub(crate) const BACKEND_CONNECTIONS_UP: Definition =
    gauge("waystage_backend_connections_up", BACKEND, "Connections to the backend that accept requests");
pub(crate) const BACKEND_CONNECTIONS_OPENED: Definition = counter(
    "waystage_backend_connections_opened_total",
    BACKEND,
    "Connections to the backend opened: the first ones and every reconnection",
);
pub(crate) const BACKEND_CONNECTIONS_LOST: Definition = counter(
    "waystage_backend_connections_lost_total",
    &["pool", "backend", "reason"],
    "Connections to the backend closed because replies timed out (timeout), because a reply did not fit its request (out_of_step), because authentication failed (login), or lost or not opened (lost)",
);
pub(crate) const BACKEND_REQUESTS: Definition =
    counter("waystage_backend_requests_total", BACKEND, "Requests sent to the backend");
pub(crate) const BACKEND_BULK_REQUESTS: Definition = counter(
    "waystage_backend_bulk_requests_total",
    BACKEND,
    "Requests sent to the backend on the connection for large replies",
);
pub(crate) const BACKEND_REPLIES: Definition =
    counter("waystage_backend_replies_total", BACKEND, "Replies of the backend, including error replies");
pub(crate) const BACKEND_LATE_REPLIES: Definition = counter(
    "waystage_backend_late_replies_total",
    BACKEND,
    "Replies that arrived after their request had timed out, and were dropped",
);
pub(crate) const BACKEND_CARRIED_OVER: Definition = counter(
    "waystage_backend_carried_over_total",
    BACKEND,
    "Requests sent on the next connection, because the one before was lost before a byte of them was written",
);
pub(crate) const BACKEND_ERRORS: Definition = counter(
    "waystage_backend_errors_total",
    &["pool", "backend", "kind"],
    "Requests for the backend that failed: refused before they were sent, lost, timed out, or answered with an error",
);
pub(crate) const BACKEND_IN_FLIGHT: Definition =
    gauge("waystage_backend_in_flight", BACKEND, "Requests that wait for a reply of the backend");
pub(crate) const BACKEND_SENT_BYTES: Definition =
    counter("waystage_backend_sent_bytes_total", BACKEND, "Bytes of requests to the backend");
pub(crate) const BACKEND_RECEIVED_BYTES: Definition =
    counter("waystage_backend_received_bytes_total", BACKEND, "Bytes of replies of the backend");
pub(crate) const QUEUE_LENGTH: Definition = gauge("waystage_queue_length", QUEUE, "Requests waiting in the queue");
pub(crate) const QUEUE_FULL: Definition =
    counter("waystage_queue_full_total", QUEUE, "Requests refused because the queue was full");
pub(crate) const SLOTS_BUSY: Definition =
    gauge("waystage_slots_busy", QUEUE, "Slots of the queue that serve a request");
pub(crate) const HOT_KEY_RATE: Definition = gauge(
    "waystage_hot_key_requests_per_second",
    &["key"],
    "Requests per second for the most requested keys; only with --hot-keys-metrics",
);
pub(crate) const HOT_KEY_ERROR: Definition = gauge(
    "waystage_hot_key_error_requests_per_second",
    &["key"],
    "Bound on the error of the rate of a hot key; only with --hot-keys-metrics",
);
pub(crate) const HOT_KEYS_RATE: Definition = gauge(
    "waystage_hot_keys_requests_per_second",
    &[],
    "Requests per second for all keys, as the sketch of hot keys counts them; only with --hot-keys-metrics",
);
pub(crate) const RECORDS_DROPPED: Definition = counter(
    "waystage_records_dropped_total",
    &[],
    "Records dropped because the thread that writes them was behind, or because the file could not be written",
);
pub(crate) const SLOW_REQUESTS: Definition =
    counter("waystage_slow_requests_total", &[], "Requests that took at least as long as --slow-requests");
pub(crate) const LOG_LINES: Definition = counter("waystage_log_lines_total", &[], "Lines written to the log");
pub(crate) const LOG_LINES_LOST: Definition = counter(
    "waystage_log_lines_lost_total",
    &[],
    "Lines of the log that could not be written, or for which the queue of lines had no room",
);
pub(crate) const TRACES_EXPORTED: Definition =
    counter("waystage_traces_exported_total", &[], "Sampled requests whose spans the collector has accepted");
pub(crate) const TRACES_DROPPED: Definition =
    counter("waystage_traces_dropped_total", &[], "Sampled requests without spans, because traces-queue was full");
pub(crate) const TRACES_FAILED: Definition = counter(
    "waystage_traces_failed_total",
    &[],
    "Sampled requests whose spans the collector has refused, or not accepted within a minute, or before a reload or the end of the proxy",
);
pub(crate) const TRACE_SPANS_REJECTED: Definition = counter(
    "waystage_trace_spans_rejected_total",
    &[],
    "Spans that the collector has reported as rejected in a reply that accepts the others",
);
pub(crate) const TRACE_ATTEMPTS_FAILED: Definition = counter(
    "waystage_trace_attempts_failed_total",
    &[],
    "Attempts to send spans that failed: no connection, no valid reply within 10 s, or another status than success",
);
pub(crate) const SCRAPE_STALE_LOOPS: Definition = counter(
    "waystage_scrape_stale_loops_total",
    &[],
    "Event loops that did not answer a scrape in time, so that their previous histograms were shown",
);
pub(crate) const SCRAPES: Definition =
    counter("waystage_scrapes_total", &[], "Requests for this page, including this one");
pub(crate) const METRICS_CONNECTIONS_CLOSED: Definition = counter(
    "waystage_metrics_connections_closed_total",
    &["reason"],
    "Connections to the metrics that the proxy closed: too slow (timeout), too many (limit), or too large a request (size)",
);
pub(crate) const LOOPS: Definition = gauge("waystage_loops", &[], "Event loops");
pub(crate) const BUILD_INFO: Definition =
    gauge("waystage_build_info", &["version", "dispatch"], "Always 1; the labels give version and dispatch discipline");
pub(crate) const PROCESS_START_TIME: Definition =
    gauge("process_start_time_seconds", &[], "Start time of the process, in seconds since 1970");
pub(crate) const PROCESS_CPU: Definition =
    counter("process_cpu_seconds_total", &[], "CPU time of the process, user and system");
pub(crate) const PROCESS_MEMORY: Definition =
    gauge("process_resident_memory_bytes", &[], "Resident memory of the process");
pub(crate) const PROCESS_OPEN_FILES: Definition = gauge("process_open_fds", &[], "Open file descriptors");
pub(crate) const PROCESS_MAX_FILES: Definition =
    gauge("process_max_fds", &[], "Largest number of open file descriptors");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    /// The lines of the tables in docs/metrics.md: name, kind, labels, meaning, question.
    fn page() -> Vec<Vec<String>> {
        let text = include_str!("../../../../docs/metrics.md");
        let rows = text.lines().filter(|line| line.starts_with("| `waystage_") || line.starts_with("| `process_"));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()).collect()
    }

    #[test]
    fn the_page_has_one_line_for_each_metric_with_the_same_text() {
        let rows = page();
        let by_name: HashMap<String, &Vec<String>> =
            rows.iter().map(|row| (row[0].trim_matches('`').to_string(), row)).collect();
        assert_eq!(by_name.len(), rows.len(), "a metric has two lines");
        for definition in ALL {
            let Some(row) = by_name.get(definition.name) else {
                panic!("{} is not in docs/metrics.md", definition.name)
            };
            let kind = format!("{:?}", definition.kind).to_lowercase();
            let labels: Vec<String> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
            assert_eq!(row[1..4], [kind, labels.join(", "), definition.help.into()], "{}", definition.name);
            assert!(row.len() == 5 && row[4].ends_with('?'), "{}: which question does it answer?", definition.name);
        }
        let known: BTreeSet<&str> = ALL.iter().map(|definition| definition.name).collect();
        let unknown: Vec<&String> = by_name.keys().filter(|name| !known.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "docs/metrics.md has metrics that do not exist: {unknown:?}");
        assert_eq!(known.len(), ALL.len(), "a name is used twice");
    }

    /// The rules of promtool's linter for names.
    #[test]
    fn names_follow_the_rules() {
        let is_word = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        for Definition { name, kind, labels, help } in ALL {
            assert!(is_word(name) && labels.iter().all(|label| is_word(label)), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            let words: Vec<&str> = name.split('_').collect();
            for word in ["ms", "us", "ns", "milliseconds", "kb", "kilobytes", "counter", "gauge", "histogram", "count"]
            {
                assert!(!words.contains(&word), "{name}: {word}");
            }
            assert!(!labels.contains(&"le") && !labels.contains(&"quantile"), "{name}");
            assert!(!help.is_empty() && !help.contains('\n') && !help.contains('|') && !help.ends_with('.'), "{name}");
        }
    }
}
