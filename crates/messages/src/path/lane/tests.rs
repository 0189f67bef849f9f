//! A lane whose server stops in the middle of a statement, or never answers.

use super::*;
use crate::embedded::test_server::TestServer;
use crate::observe::limits::{Limit, LimitCounts};
use crate::observe::measurements::Measurements;
use crate::observe::record_file::RecordSink;
use crate::path::caller::Caller;
use crate::path::failure::Failure;
use crate::path::queue::Bounds;
use crate::path::work::{JobResult, Work};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

const BOUNDS: Bounds = Bounds {
    waiting_requests: 10,
    waiting_bytes: 10,
    waiting_of_party: 10,
    waiting_bytes_of_party: 10,
    taken_requests: usize::MAX,
    taken_messages: 10,
    taken_bytes: 10,
};
const BACKEND: &str =
    "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";

fn push_read(queue: &JobQueue) -> oneshot::Receiver<JobResult> {
    let (back, receiver) = oneshot::channel();
    queue
        .push(Job {
            work: Work::ShowQueue("none".into()),
            measurements: Measurements::default(),
            caller: Caller::default(),
            _reservation: None,
            back,
        })
        .unwrap();
    receiver
}

fn lane(queue: &Arc<JobQueue>, database: &Database) -> Lane {
    Lane {
        number: 0,
        queue: queue.clone(),
        connections: Arc::new(LaneConnections::new("0", Clock::monotonic())),
        database: database.clone(),
        low_water_marks: LowWaterMarks::new(usize::MAX, 10, Arc::default()),
        memory: Arc::new(Memory::new(1000)),
        body_bytes: 10,
        clock: Clock::monotonic(),
        journal: Arc::new(Journal::new(RecordSink::default(), Arc::default())),
        lock_timeout: ("5s", Limit::LockTimeout),
        has_long_statements: false,
    }
}

async fn pid(database: &Database) -> Pid {
    let row = database.connect_in_background().await.unwrap().query_one(BACKEND, &[]).await.unwrap();
    Pid::from_raw(row.get(0)).unwrap()
}

#[tokio::test]
async fn a_lane_reconnects_when_its_server_stops_answering() {
    let Some(server) = TestServer::start() else { return };
    let database = Database::parse(&server.url(), None, Duration::from_secs(10)).unwrap();
    let queue = Arc::new(JobQueue::new(BOUNDS, Arc::default()));
    let lane = tokio::spawn(lane(&queue, &database).run());
    assert_eq!(push_read(&queue).await.unwrap().result, Err(Failure::UnknownQueue));
    let backend = pid(&database).await;
    kill_process(backend, Signal::STOP).unwrap();
    let stuck = push_read(&queue);
    // From here on, time advances whenever all tasks wait.
    tokio::time::pause();
    assert!(stuck.await.is_err(), "its channel is dropped, so admit reports it as in doubt");
    tokio::time::resume();
    assert_eq!(push_read(&queue).await.unwrap().result, Err(Failure::UnknownQueue));
    kill_process(backend, Signal::CONT).unwrap();
    queue.close();
    lane.await.unwrap();
}

/// With paused time, the clock advances whenever all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_job_waits_for_one_attempt_to_connect() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("host=127.0.0.1 port={} user=me", silent.local_addr().unwrap().port());
    let database = Database::parse(&url, None, Duration::from_secs(10)).unwrap();
    let queue = Arc::new(JobQueue::new(BOUNDS, Arc::default()));
    let began = Instant::now();
    let lane = tokio::spawn(lane(&queue, &database).run());
    assert_eq!(push_read(&queue).await.unwrap().result, Err(Failure::DatabaseDown));
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    queue.close();
    lane.await.unwrap();
}

/// The futures of the statements are on the heap. Inside the future of the batch, they were copied several times for each batch.
#[test]
fn the_future_of_a_batch_is_small() {
    type Limits = (&'static LimitCounts, Limit);
    type Arguments =
        (&'static DatabaseSession, &'static LowWaterMarks, &'static Arc<Memory>, JobBatch, &'static Clock, Limits);
    fn size_of_future<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }
    let bytes = size_of_future(|(session, low_water_marks, memory, batch, clock, limits): Arguments| {
        answer::serve(session, low_water_marks, memory, batch, clock, limits)
    });
    assert!(bytes <= 4096, "{bytes}");
}
