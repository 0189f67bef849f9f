//! Step 8. Joins the replies of a job's legs into the reply to the client.

use crate::config::PartFailure;
use crate::path::job::{Job, Join};
use records::Outcome;

/// Joins the reply of a job whose legs have answered, or of which enough have.
pub(crate) fn join(job: &mut Job, failure: PartFailure) {
    assert!(!job.is_done);
    match job.join {
        Join::Forward => {
            if let Some(leg) = job.legs().first() {
                (job.outcome, job.hits) = (leg.outcome, leg.hits);
            }
        }
        Join::All => job.take_reply(job.first_error.unwrap_or(0)),
        Join::Chosen(leg) => job.take_reply(leg),
        Join::KeyOrder => join_in_key_order(job, failure),
    }
    job.is_done = true;
}

/// Joins values in the order of the keys, with one END. Each backend returns values in the order of the keys it received, so each
/// leg's reply is read once.
fn join_in_key_order(job: &mut Job, failure: PartFailure) {
    let error = job.first_error.map(|leg| job.legs()[leg as usize].reply.clone());
    job.outcome = job.first_error.map_or(Outcome::Answered, |leg| job.legs()[leg as usize].outcome);
    if let Some(line) = &error
        && (failure == PartFailure::Error || has_no_answer(job))
    {
        job.reply.extend_from_slice(line);
        return;
    }
    let (mut reply, rare) = (std::mem::take(&mut job.reply), std::mem::take(&mut job.rare));
    let mut hits = 0;
    for wanted in &rare.get().wanted {
        let leg = job.leg(wanted.leg);
        let value = &leg.reply[leg.joined_bytes..][..wanted.value_bytes as usize];
        reply.extend_from_slice(value);
        leg.joined_bytes += value.len();
        hits += u16::from(!value.is_empty());
    }
    job.rare = rare;
    match (error, failure) {
        (Some(line), PartFailure::Partial) => reply.extend_from_slice(&line),
        _ => reply.extend_from_slice(b"END\r\n"),
    }
    job.hits = hits;
    job.reply = reply;
}

/// Whether the part of every key has failed. A cluster that is down must not look like an empty cache: clients would load all
/// values from the database behind it.
fn has_no_answer(job: &Job) -> bool {
    job.rare.get().wanted.iter().all(|wanted| job.legs()[wanted.leg as usize].outcome != Outcome::Answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::job::Candidate;
    use crate::path::jobs::Jobs;
    use clock::Nanos;
    use proptest::prelude::*;
    use wire::Verb;

    /// The reply to a job with these legs, each with its reply and outcome, in the order in which they answered.
    fn joined(join_by: Join, verb: Verb, legs: &[(&[u8], Outcome)]) -> (Vec<u8>, Outcome) {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        (job.join, job.verb) = (join_by, verb);
        for index in 0..legs.len() {
            job.add_leg(index as u16);
        }
        for (index, (reply, outcome)) in legs.iter().enumerate() {
            job.leg_answered(index as u16, reply, *outcome, Nanos(1));
        }
        join(job, PartFailure::Miss);
        (job.reply.clone(), job.outcome)
    }

    #[test]
    fn of_all_backends_the_first_error_wins() {
        let ok: (&[u8], Outcome) = (b"OK\r\n", Outcome::Answered);
        let down: (&[u8], Outcome) = (b"SERVER_ERROR down\r\n", Outcome::BackendDown);
        let memory: (&[u8], Outcome) = (b"SERVER_ERROR out of memory\r\n", Outcome::ServerError);
        assert_eq!(joined(Join::All, Verb::FlushAll, &[ok, ok]).0, b"OK\r\n");
        assert_eq!(joined(Join::All, Verb::FlushAll, &[ok, memory, down]), (memory.0.to_vec(), memory.1));
        assert_eq!(joined(Join::Chosen(1), Verb::Get, &[memory, ok]), (ok.0.to_vec(), ok.1));
    }

    /// A multi-get over `keys` (key, leg, hit), with one leg failed or not.
    fn multi_get(keys: &[(u16, u16, bool)], legs: u16, failed: Option<u16>, failure: PartFailure) -> (String, u16) {
        let mut jobs = Jobs::default();
        let id = jobs.begin();
        let job = jobs.get(id);
        (job.join, job.verb) = (Join::KeyOrder, Verb::Get);
        let mut replies = vec![String::new(); legs as usize];
        for &(key, leg, hit) in keys {
            let value = if hit { format!("VALUE k{key} 0 2\r\nv{}\r\n", key % 10) } else { String::new() };
            replies[leg as usize] += &value;
            let value_bytes = if Some(leg) == failed { 0 } else { value.len() as u32 };
            let rare = job.rare.change();
            rare.want(format!("k{key}").as_bytes(), 0, leg, Candidate::default());
            rare.wanted.last_mut().unwrap().value_bytes = value_bytes;
        }
        for leg in 0..legs {
            job.add_leg(leg);
        }
        for leg in 0..legs {
            let (line, outcome) = if Some(leg) == failed {
                ("SERVER_ERROR gone\r\n".to_string(), Outcome::Timeout)
            } else {
                (std::mem::take(&mut replies[leg as usize]) + "END\r\n", Outcome::Answered)
            };
            job.leg_answered(leg, line.as_bytes(), outcome, Nanos(1));
        }
        join(job, failure);
        (String::from_utf8(job.reply.clone()).unwrap(), job.hits)
    }

    #[test]
    fn a_failed_part_is_a_miss_an_error_at_the_end_or_an_error_for_all() {
        let keys = [(1, 0, true), (2, 1, true), (1, 0, true)];
        let one = "VALUE k1 0 2\r\nv1\r\n";
        assert_eq!(multi_get(&keys, 2, Some(1), PartFailure::Miss), (format!("{one}{one}END\r\n"), 2));
        assert_eq!(multi_get(&keys, 2, Some(1), PartFailure::Partial).0, format!("{one}{one}SERVER_ERROR gone\r\n"));
        assert_eq!(multi_get(&keys, 2, Some(1), PartFailure::Error), ("SERVER_ERROR gone\r\n".into(), 0));
    }

    #[test]
    fn if_every_part_has_failed_the_reply_is_an_error() {
        let keys = [(1, 0, true), (2, 0, true)];
        for policy in [PartFailure::Miss, PartFailure::Partial, PartFailure::Error] {
            assert_eq!(multi_get(&keys, 1, Some(0), policy), ("SERVER_ERROR gone\r\n".into(), 0));
        }
    }

    #[test]
    fn more_than_256_parts_are_joined() {
        let keys: Vec<(u16, u16, bool)> = (0..300).map(|key| (key, key, true)).collect();
        let values: String = (0..300).map(|key| format!("VALUE k{key} 0 2\r\nv{}\r\n", key % 10)).collect();
        assert_eq!(multi_get(&keys, 300, None, PartFailure::Miss), (values + "END\r\n", 300));
        assert_eq!(multi_get(&keys, 300, Some(299), PartFailure::Error).0, "SERVER_ERROR gone\r\n");
    }

    proptest! {
        #[test]
        fn values_come_in_key_order_with_one_end(shape in proptest::collection::vec((0u16..30, any::<bool>()), 1..40)) {
            // A key always has the same backend, and is a hit or a miss for all its occurrences.
            let hit = |key: u16| shape.iter().find(|(other, _)| *other == key).is_some_and(|(_, hit)| *hit);
            let keys: Vec<(u16, u16, bool)> = shape.iter().map(|&(key, _)| (key, key % 3, hit(key))).collect();
            let mut expected = String::new();
            for (key, _, _) in keys.iter().filter(|(_, _, hit)| *hit) {
                expected += &format!("VALUE k{key} 0 2\r\nv{}\r\n", key % 10);
            }
            expected += "END\r\n";
            prop_assert_eq!(multi_get(&keys, 3, None, PartFailure::Miss).0, expected);
        }
    }
}
