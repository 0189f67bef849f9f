//! Writes the requests of a replication as records (docs/record-format.md). Virtual time starts at 0.
//!
//! A `load` file has one row for each request, and a `cache` file for each station one row for each visit. If the model
//! has stamps, a `proxy` file has one row for each request.

use crate::description::Discipline;
use crate::engine::jobs::Job;
use crate::engine::observer::Observer;
use crate::model::Model;
use clock::{Nanos, STAGES};
use records::{Header, NO_BACKEND, Outcome, PARENT, Program, Row, RowSender, Writer, is_sampled};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

const FIRST_PORT: u32 = 1024;
const PORTS: u32 = 60_000;

/// The files that were written, and the part of their time that was measured.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/model-format.md describes every field once")]
pub struct RecordsWritten {
    pub files: Vec<PathBuf>,
    pub sample: u32,
    pub rows: u64,
    pub measured_from_s: f64,
    pub measured_to_s: f64,
}

/// The files while they are written.
#[derive(Debug)]
pub(crate) struct RecordFiles {
    sample: u32,
    load: (Writer, RowSender),
    stations: Vec<(Writer, RowSender)>,
    proxy: Option<(Writer, RowSender)>,
}

/// Writes a row when a visit or a request ends.
#[derive(Debug)]
pub(crate) struct Recorder<'m> {
    files: RecordFiles,
    model: &'m Model,
    ports: Ports,
    /// By job: the number present when it arrived at the station.
    ahead: Vec<u32>,
    /// By job: when it passed each stage; NaN before that.
    stages_s: Vec<[f64; STAGES]>,
}

/// Ports of closed customers, then ports that open requests use in turn.
#[derive(Clone, Copy, Debug)]
struct Ports {
    customers: u32,
    closed: u32,
    open: u32,
}

impl RecordFiles {
    /// Creates the files, and the directory if it is missing.
    pub(crate) fn create(directory: &Path, sample: u32, model: &Model) -> io::Result<RecordFiles> {
        std::fs::create_dir_all(directory)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?;
        let begin = |program, name: String| {
            let header = Header { clock: "simulated".into(), ..Header::new(program, sample, Nanos(0), 0) };
            let writer = Writer::begin(directory.join(name), &header)?;
            let sender = writer.patient_sender();
            Ok::<_, io::Error>((writer, sender))
        };
        Ok(RecordFiles {
            sample,
            load: begin(Program::Load, "load-0.way".into())?,
            stations: (0..model.stations.len())
                .map(|station| begin(Program::Cache, format!("cache-{station}.way")))
                .collect::<io::Result<_>>()?,
            proxy: model.stamps.is_some().then(|| begin(Program::Proxy, "proxy-0.way".into())).transpose()?,
        })
    }
}

impl<'m> Recorder<'m> {
    pub(crate) fn new(files: RecordFiles, model: &'m Model) -> Recorder<'m> {
        Recorder { files, model, ports: Ports::new(model), ahead: Vec::new(), stages_s: Vec::new() }
    }

    /// Writes the footers.
    pub(crate) fn close(self, measured_from_s: f64, measured_s: f64) -> io::Result<RecordsWritten> {
        let RecordFiles { sample, load, stations, proxy } = self.files;
        let (mut rows, mut paths) = (0, Vec::new());
        for (writer, sender) in std::iter::once(load).chain(stations).chain(proxy) {
            drop(sender);
            paths.push(writer.path().to_owned());
            rows += writer.close(0)?.written;
        }
        let measured_to_s = measured_from_s + measured_s;
        Ok(RecordsWritten { files: paths, sample, rows, measured_from_s, measured_to_s })
    }

    /// The row of a request or leg, if it is sampled.
    fn row(&self, job: &Job) -> Option<Row> {
        let (connection, port, sequence) = self.ports.of(job, self.is_open(job));
        let operation = match self.model.classes[job.began_class as usize].name.to_ascii_lowercase().as_str() {
            "get" => 1,
            "set" => 5,
            _ => 0,
        };
        is_sampled(port, sequence, self.files.sample).then(|| Row {
            connection,
            sequence,
            port,
            operation,
            backend: NO_BACKEND,
            keys: u16::from(operation > 0),
            hits: u16::from(operation == 1),
            leg: PARENT,
            legs: 1,
            ..Row::default()
        })
    }

    fn is_open(&self, job: &Job) -> bool {
        self.model.classes[job.began_class as usize].arrivals.is_some()
    }

    /// Stamps the stages of an event. If a stage has several events, its first or its last one counts.
    fn mark(&mut self, number: u32, job: &Job, stages: u8, time_s: f64, is_first: bool) {
        if stages == 0 || job.is_leg {
            return;
        }
        for (stage, mark) in self.stages_s[number as usize].iter_mut().enumerate() {
            if stages & (1 << stage) != 0 && (mark.is_nan() || !is_first) {
                *mark = time_s;
            }
        }
    }

    fn stages(&self, pick: impl Fn(&crate::model::stamps::Stamps) -> Option<&u8>) -> u8 {
        self.model.stamps.as_ref().and_then(pick).copied().unwrap_or(0)
    }
}

impl Observer for Recorder<'_> {
    fn began(&mut self, number: u32, _request: &Job) {
        grow(&mut self.stages_s, number, [f64::NAN; STAGES]);
        self.stages_s[number as usize] = [f64::NAN; STAGES];
    }

    fn arrived(&mut self, number: u32, job: &Job, present: u32) {
        grow(&mut self.ahead, number, 0);
        self.ahead[number as usize] = present.saturating_sub(1);
        let stages = self.stages(|stamps| stamps.enter.get(job.node as usize));
        self.mark(number, job, stages, job.arrived_s, true);
    }

    fn left(&mut self, number: u32, job: &Job, now_s: f64) {
        let node = job.node as usize;
        // With processor sharing, service starts on arrival.
        let shares = self.model.stations.get(node).is_none_or(|plan| plan.discipline == Discipline::Sharing);
        let started_s = if shares { job.arrived_s } else { job.arrived_s + job.waited_s };
        let stages = self.stages(|stamps| stamps.start.get(node));
        self.mark(number, job, stages, started_s, true);
        let stages = self.stages(|stamps| stamps.leave.get(node));
        self.mark(number, job, stages, now_s, false);
        if node >= self.files.stations.len() {
            return;
        }
        if let Some(row) = self.row(job) {
            let row = Row {
                r#loop: node.min(usize::from(u8::MAX)) as u8,
                queue_length: self.ahead[number as usize],
                leg: if job.is_leg { (job.leg as u8).min(PARENT - 1) } else { PARENT },
                legs: if job.is_leg { job.legs_left.min(u32::from(u8::MAX)) as u8 } else { 1 },
                ..row
            };
            let stamps = increasing_ns([job.arrived_s, started_s, job.work_s, now_s]);
            self.files.stations[node].1.push(&row, &stamps);
        }
    }

    fn acquired(&mut self, number: u32, job: &Job, pool: u32, now_s: f64) {
        let stages = self.stages(|stamps| stamps.acquire.get(pool as usize));
        self.mark(number, job, stages, now_s, true);
    }

    fn released(&mut self, number: u32, job: &Job, pool: u32, now_s: f64) {
        let stages = self.stages(|stamps| stamps.release.get(pool as usize));
        self.mark(number, job, stages, now_s, false);
    }

    fn ended(&mut self, number: u32, request: &Job, now_s: f64, is_lost: bool) {
        let Some(row) = self.row(request) else { return };
        let outcome = if is_lost { Outcome::Overloaded } else { Outcome::Answered } as u8;
        let row = Row { outcome, hits: if is_lost { 0 } else { row.hits }, ..row };
        let began_s = request.began_s;
        self.files.load.1.push(&row, &increasing_ns([began_s, began_s, began_s, now_s]));
        if let Some((_, sender)) = &mut self.files.proxy {
            let mut stages_s = self.stages_s[number as usize];
            let mut before_s = began_s;
            for stage_s in &mut stages_s {
                // A stage that was not passed, or was passed out of order, has the stamp of the previous stage.
                *stage_s = stage_s.max(before_s);
                before_s = *stage_s;
            }
            sender.push(&row, &increasing_ns(stages_s));
        }
    }
}

impl Ports {
    fn new(model: &Model) -> Ports {
        let customers = model.population as u32;
        let has_open = model.classes.iter().any(|class| class.arrivals.is_some());
        let closed = customers.min(if has_open { PORTS / 2 } else { PORTS });
        Ports { customers, closed, open: PORTS - closed }
    }

    /// Connection, port and sequence. No two requests have the same port and sequence before the sequence wraps.
    fn of(&self, job: &Job, is_open: bool) -> (u32, u16, u32) {
        let number = job.customer;
        if is_open {
            let turn = number % self.open;
            return (self.customers + turn, (FIRST_PORT + self.closed + turn) as u16, number / self.open);
        }
        let rounds = self.customers.div_ceil(self.closed);
        let sequence = job.sequence.wrapping_mul(rounds).wrapping_add(number / self.closed);
        (number, (FIRST_PORT + number % self.closed) as u16, sequence)
    }
}

fn grow<T: Clone>(values: &mut Vec<T>, number: u32, empty: T) {
    if values.len() <= number as usize {
        values.resize(number as usize + 1, empty);
    }
}

/// Nanoseconds that never decrease: a sum of rounded seconds may lie slightly before its exact value.
fn increasing_ns<const N: usize>(times_s: [f64; N]) -> [u64; N] {
    let mut before_ns = 0;
    times_s.map(|time_s| {
        before_ns = before_ns.max((time_s * 1e9) as u64);
        before_ns
    })
}
