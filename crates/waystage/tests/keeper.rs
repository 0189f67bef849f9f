//! `waystage keeper` as the lab uses it: a folder, requests on standard input, and nothing left at the end.
#![cfg(feature = "cache")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// For anything to happen on a busy machine, in steps of 20 ms.
const STEPS: usize = 3000;

/// A keeper and the folder that it was given.
struct Kept {
    process: Child,
    replies: BufReader<ChildStdout>,
    folder: PathBuf,
    _outer: tempfile::TempDir,
}

impl Kept {
    fn start(silence_s: u64) -> Kept {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("kept");
        fs::create_dir(&folder).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_waystage"))
            .args(["keeper", "--silence", &silence_s.to_string(), "--folder"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let replies = BufReader::new(process.stdout.take().unwrap());
        Kept { process, replies, folder, _outer: outer }
    }

    /// Sends a request and returns the content of its reply, which must be of this kind.
    fn request(&mut self, request: &Value, kind: &str) -> Value {
        writeln!(self.process.stdin.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        let mut reply: Value = serde_json::from_str(&line).unwrap();
        assert!(!reply[kind].is_null(), "{request}: {reply}");
        reply[kind].take()
    }

    /// Starts a cache and waits until it is ready; returns its process id.
    fn start_cache(&mut self) -> u64 {
        let command = [env!("CARGO_BIN_EXE_waystage"), "cache", "--listen", "127.0.0.1:0"];
        let pid = self.request(&json!({"start": {"name": "backend", "command": command}}), "started")["pid"].clone();
        let mut printed = String::new();
        wait_for(|| {
            let from = printed.len();
            let status = self.request(&json!({"status": {"pid": pid, "stdout": from, "stderr": 0}}), "status");
            assert!(status["ended"].is_null(), "{status}");
            printed += status["stdout"]["text"].as_str().unwrap();
            printed.contains("ready on 127.0.0.1:")
        });
        pid.as_u64().unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    for _ in 0..STEPS {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("waited in vain");
}

/// Whether a process exists that is not merely waiting to be collected.
fn is_alive(pid: u64) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

fn state(pid: u64) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn the_end_of_its_input_ends_its_programs_and_removes_its_folder() {
    let mut kept = Kept::start(60);
    let hello = kept.request(&json!({"hello": {}}), "hello");
    assert_eq!((hello["protocol"].as_u64(), hello["version"].as_str()), (Some(1), Some(env!("CARGO_PKG_VERSION"))));
    assert_eq!(hello["pid"].as_u64(), Some(u64::from(kept.process.id())));
    let pid = kept.start_cache();
    drop(kept.process.stdin.take());
    wait_for(|| kept.process.try_wait().unwrap().is_some());
    assert!(!is_alive(pid) && !kept.folder.exists());
}

#[test]
fn silence_and_a_signal_end_it_too() {
    let mut silent = Kept::start(1);
    let pid = silent.start_cache();
    wait_for(|| silent.process.try_wait().unwrap().is_some());
    assert!(!is_alive(pid) && !silent.folder.exists());

    let mut signalled = Kept::start(60);
    let pid = signalled.start_cache();
    let killed = Command::new("kill").args(["-HUP", &signalled.process.id().to_string()]).status().unwrap();
    assert!(killed.success());
    wait_for(|| signalled.process.try_wait().unwrap().is_some());
    assert!(!is_alive(pid) && !signalled.folder.exists());
}

/// The network may fail at any moment: within a request, within the program that follows one, and while replies are on their way.
#[test]
fn silence_and_a_signal_end_it_within_a_message() {
    let program = [&b"{\"write\":{\"path\":\"program\",\"bytes\":1000000}}\n"[..], &[7; 20_000]].concat();
    // More than pipes hold.
    let unread = b"{\"read\":{\"path\":\"large\",\"offset\":0}}\n".repeat(4);
    for sent in [&b"{\"clock\":"[..], &program, &unread] {
        for signal in [None, Some("-TERM")] {
            let mut kept = Kept::start(if signal.is_none() { 5 } else { 600 });
            let start = json!({"start": {"name": "sleep", "command": ["sleep", "600"]}});
            let pid = kept.request(&start, "started")["pid"].as_u64().unwrap();
            fs::write(kept.folder.join("large"), vec![b'x'; 1 << 20]).unwrap();
            kept.process.stdin.as_mut().unwrap().write_all(sent).unwrap();
            if let Some(signal) = signal {
                sleep(Duration::from_millis(200));
                assert!(
                    Command::new("kill").args([signal, &kept.process.id().to_string()]).status().unwrap().success()
                );
            }
            wait_for(|| kept.process.try_wait().unwrap().is_some());
            assert!(!is_alive(pid) && !kept.folder.exists());
        }
    }
}

#[test]
fn the_kernel_kills_its_programs_if_it_is_killed() {
    let mut kept = Kept::start(60);
    let pid = kept.start_cache();
    kept.process.kill().unwrap();
    kept.process.wait().unwrap();
    wait_for(|| !is_alive(pid));
}

#[test]
fn programs_are_stopped_when_connected_and_go_on_at_an_instant() {
    let mut kept = Kept::start(60);
    let pid = kept.start_cache();
    // The socket on which it listens.
    kept.request(&json!({"pause_connected": {"pid": pid, "sockets": 1, "within_ms": 60_000}}), "done");
    wait_for(|| state(pid) == Some('T'));
    let now_ns = kept.request(&json!({"clock": {}}), "clock")["clock_ns"].as_u64().unwrap();
    let at_ns = now_ns + 300_000_000;
    kept.request(&json!({"signal": {"pid": pid, "number": 18, "at_clock_ns": at_ns}}), "done");
    wait_for(|| state(pid) != Some('T'));
    let then_ns = kept.request(&json!({"clock": {}}), "clock")["clock_ns"].as_u64().unwrap();
    assert!(then_ns >= at_ns, "{then_ns} {at_ns}");
    kept.request(&json!({"signal": {"pid": pid, "number": 15}}), "done");
    let status = json!({"status": {"pid": pid, "stdout": 0, "stderr": 0}});
    wait_for(|| kept.request(&status, "status")["ended"] == 0);
}

#[test]
fn files_come_back_in_parts_and_mistakes_are_one_line() {
    let mut kept = Kept::start(60);
    let content = vec![7_u8; 3 << 19];
    kept.request(&json!({"make": {"path": "trial/records"}}), "done");
    fs::write(kept.folder.join("trial/records/a"), &content).unwrap();
    let files = kept.request(&json!({"list": {"path": "trial/records"}}), "list");
    assert_eq!(files, json!({"files": {"a": content.len()}}));
    let mut read = Vec::new();
    loop {
        let part = kept.request(&json!({"read": {"path": "trial/records/a", "offset": read.len()}}), "read");
        let mut bytes = vec![0; usize::try_from(part["bytes"].as_u64().unwrap()).unwrap()];
        kept.replies.read_exact(&mut bytes).unwrap();
        if bytes.is_empty() {
            break;
        }
        read.extend(bytes);
    }
    assert!(read == content);
    kept.request(&json!({"remove": {"path": "trial"}}), "done");
    assert!(!kept.folder.join("trial").exists());

    for (request, reason) in [
        (json!({"list": {"path": "absent"}}), "No such file"),
        (json!({"port": {"address": "203.0.113.1"}}), "Cannot assign"),
        (json!({"signal": {"pid": 1, "number": 15}}), "was not started here"),
        (json!({"status": {"pid": 1, "stdout": 0, "stderr": 0}}), "was not started here"),
        (json!({"stat": {}}), "cannot be read"),
    ] {
        let line = kept.request(&request, "error")["line"].as_str().unwrap().to_string();
        assert!(line.contains(reason) && !line.contains('\n'), "{line}");
    }
}

#[test]
fn a_program_that_cannot_start_reports_it_in_its_output() {
    let mut kept = Kept::start(60);
    let pid = kept.request(&json!({"start": {"name": "x", "command": ["/no/such/program"]}}), "started")["pid"].clone();
    let status = json!({"status": {"pid": pid, "stdout": 0, "stderr": 0}});
    let mut last = Value::Null;
    wait_for(|| {
        last = kept.request(&status, "status");
        !last["ended"].is_null()
    });
    assert_eq!(last["ended"], 1);
    let line = last["stderr"]["text"].as_str().unwrap();
    assert!(line.contains("/no/such/program: cannot be started"), "{line}");
    assert!(Path::new(&kept.folder).join("logs/x.stderr").exists());
}
