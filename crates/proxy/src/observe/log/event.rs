//! The events of the process and of the backends, and their lines.

use crate::config::LogLevel;
use crate::observe::counters::Loss;
use crate::observe::log::line::Line;
use std::time::Duration;

/// The most changed keys that the line about a reload names.
const CHANGES_MAX: usize = 20;

/// What can happen to the process that runs a proxy. Its owner reports it with `Running::log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It serves.
    Started {
        /// The addresses that clients connect to.
        listening: Vec<String>,
    },
    /// It serves with another configuration.
    Reloaded {
        /// The addresses that clients connect to.
        listening: Vec<String>,
        /// The keys that have changed, each with both values.
        changes: Vec<String>,
    },
    /// A new configuration was refused. The earlier one stays in force.
    ReloadFailed {
        /// The reason.
        reason: String,
    },
    /// Something does not work that does not keep the proxy from serving.
    Warning {
        /// What, in one line.
        text: String,
    },
    /// A list of servers cannot be used. The pool keeps its last one.
    ServerListFailed {
        /// The name of the pool.
        pool: String,
        /// The reason, with the name of the file or of the host.
        reason: String,
    },
    /// Another process has taken over.
    TakenOver,
    /// It stops.
    Stopping,
}

/// What the watch has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogEvent {
    Process(ProcessEvent),
    /// A backend accepts no requests any more, or did not for a moment.
    BackendDown {
        backend: String,
        reason: Option<Loss>,
        is_over: bool,
    },
    /// It accepts requests again.
    BackendUp {
        backend: String,
        down: Duration,
    },
    /// Something that is counted has happened so often since the last line.
    Counted {
        level: LogLevel,
        event: &'static str,
        count: u64,
        message: String,
    },
}

impl LogEvent {
    pub(crate) fn line(&self) -> Line {
        match self {
            LogEvent::Process(event) => process_line(event),
            LogEvent::BackendDown { backend, reason, is_over } => {
                let why = reason.map_or("for an unknown reason".into(), |reason| format!("because {}", reason.text()));
                let message = match is_over {
                    false => format!("backend {backend} is down, {why}"),
                    true => format!("backend {backend} was down for a moment, {why}"),
                };
                let fields = vec![("backend", backend.clone().into()), ("reason", reason.map(Loss::name).into())];
                Line { level: LogLevel::Warn, event: "backend_down", message, fields }
            }
            LogEvent::BackendUp { backend, down } => {
                let seconds = (down.as_secs_f64() * 10.0).round() / 10.0;
                let message = format!("backend {backend} is up again after {seconds:.1} s");
                let fields = vec![("backend", backend.clone().into()), ("down_s", seconds.into())];
                Line { level: LogLevel::Info, event: "backend_up", message, fields }
            }
            LogEvent::Counted { level, event, count, message } => {
                Line { level: *level, event, message: message.clone(), fields: vec![("count", (*count).into())] }
            }
        }
    }
}

fn process_line(event: &ProcessEvent) -> Line {
    let line = |level, event, message: String| Line { level, event, message, fields: Vec::new() };
    match event {
        ProcessEvent::Started { listening } => Line {
            fields: vec![("listening", listening.clone().into())],
            ..line(LogLevel::Info, "started", format!("listening on {}", listening.join(" and ")))
        },
        ProcessEvent::Reloaded { listening, changes } => {
            let shown = &changes[..changes.len().min(CHANGES_MAX)];
            let text = match changes.len() {
                0 => "nothing has changed".into(),
                _ if shown.len() < changes.len() => {
                    format!("{}; and {} more changes", shown.join("; "), changes.len() - shown.len())
                }
                _ => shown.join("; "),
            };
            Line {
                fields: vec![("listening", listening.clone().into()), ("changes", shown.to_vec().into())],
                ..line(LogLevel::Info, "reloaded", format!("reloaded the configuration: {text}"))
            }
        }
        ProcessEvent::ReloadFailed { reason } => {
            line(LogLevel::Error, "reload_failed", format!("{reason}; the configuration stays as it was"))
        }
        ProcessEvent::Warning { text } => line(LogLevel::Warn, "warning", text.clone()),
        ProcessEvent::ServerListFailed { pool, reason } => Line {
            fields: vec![("pool", pool.clone().into())],
            ..line(LogLevel::Warn, "server_list_failed", format!("pool {pool} keeps its previous servers: {reason}"))
        },
        ProcessEvent::TakenOver => line(
            LogLevel::Info,
            "taken_over",
            "another process has taken over the listening sockets; this process serves only its connected clients"
                .into(),
        ),
        ProcessEvent::Stopping => {
            line(LogLevel::Info, "stopping", "stopping: new clients are no longer accepted".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_a_backend_is_a_sentence_with_and_without_a_reason() {
        let text = |reason, is_over| LogEvent::BackendDown { backend: "a:1".into(), reason, is_over }.line().message;
        assert_eq!(text(Some(Loss::Timeout), false), "backend a:1 is down, because requests timed out");
        assert_eq!(text(None, true), "backend a:1 was down for a moment, for an unknown reason");
    }
}
