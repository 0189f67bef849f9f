//! Step 9. Writes the replies of a session in the order of its requests, and ends their jobs.

use crate::path::core::Core;
use crate::path::job::JobId;
use crate::path::session::{Gone, Session, keys_read};

/// A reply of at least this size is moved to the connection instead of copied.
const MOVED_BYTES: usize = 16 * 1024;
/// A larger reply that is copied to the connection and not written at once is freed.
const KEPT_REPLY_BYTES: usize = 512;

impl Session {
    /// Writes the replies that are complete, in the order of the requests. A job ends when the kernel has accepted its last byte.
    pub(crate) fn reply(&mut self, core: &mut Core) -> Result<(), Gone> {
        self.is_listed = false;
        let was_empty = self.connection.outbox.is_empty();
        self.deliver(core);
        if self.queue.delivered_len() == 0 && self.connection.outbox.is_empty() {
            return Ok(());
        }
        let written = self.connection.outbox.written_total();
        loop {
            self.flush(core)?;
            // What was written has made room for a reply that was dropped.
            if !self.connection.outbox.is_empty() || !self.deliver(core) {
                break;
            }
        }
        if was_empty || self.connection.outbox.written_total() > written {
            self.delivered = core.turn;
            core.progressed = core.turn;
        }
        self.free_copied_replies(core);
        self.release();
        self.count_buffers(core);
        Ok(())
    }

    /// Moves the replies that are complete to the output. Returns whether there were any.
    fn deliver(&mut self, core: &mut Core) -> bool {
        let before = self.queue.delivered_len();
        while let Some(id) = self.queue.oldest_undelivered() {
            let job = core.jobs.get(id);
            if !job.is_done || job.dropped_value.is_some() && !self.read_again(id, core) {
                break;
            }
            self.queue.deliver();
            let job = core.jobs.get(id);
            self.keys_in_order -= keys_read(job);
            self.request_bytes -= job.request_bytes as usize;
            if job.is_part || self.rare.continues(job.sequence) {
                self.continue_line(id, core);
            }
            self.append_reply(id, core);
            core.jobs.get(id).reply_end = self.connection.outbox.queued_total();
        }
        self.queue.delivered_len() > before
    }

    fn append_reply(&mut self, id: JobId, core: &mut Core) {
        self.learn_from(id, core);
        let job = core.jobs.get(id);
        if job.is_quiet {
            return;
        }
        job.reply_bytes = job.reply.len() as u32;
        if self.hold(id, core) {
            return core.jobs.reply_moved(id);
        }
        let job = core.jobs.get(id);
        core.journal.counters.replied_bytes.add(job.reply.len() as u64);
        if job.reply.len() >= MOVED_BYTES {
            self.connection.outbox.append_owned(std::mem::take(&mut job.reply));
        } else {
            self.connection.outbox.append(|out| out.extend_from_slice(&job.reply));
        }
        core.jobs.reply_moved(id);
    }

    fn flush(&mut self, core: &mut Core) -> Result<(), Gone> {
        self.connection.flush().map_err(|_| Gone)?;
        let (written, now) = (self.connection.outbox.written_total(), core.clock.now());
        let mut count = 0;
        for &id in self.queue.delivered() {
            if core.jobs.get(id).reply_end > written {
                break;
            }
            core.journal.end(&mut core.jobs, id, now);
            count += 1;
        }
        self.queue.pop(count);
        Ok(())
    }

    /// Frees replies that were copied to the output, if the client does not read it at once.
    fn free_copied_replies(&mut self, core: &mut Core) {
        for &id in self.queue.delivered().iter().rev() {
            let job = core.jobs.get(id);
            if job.reply.len() <= KEPT_REPLY_BYTES {
                break;
            }
            job.reply = Vec::new();
        }
    }

    /// Ends the finished jobs of a client that is gone. Jobs in flight end when they are answered.
    pub(crate) fn abandon(&mut self, core: &mut Core) {
        let now = core.clock.now();
        let (delivered, others) = self.queue.take();
        for id in delivered {
            core.journal.end_undelivered(&mut core.jobs, id, now);
        }
        for id in others {
            if core.jobs.get(id).is_done {
                core.journal.end_undelivered(&mut core.jobs, id, now);
            }
        }
    }
}
