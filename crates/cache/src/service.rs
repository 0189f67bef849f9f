//! The service time: virtual workers that serve one queue, first in, first out.
//! Pure arithmetic on given times; knows of a request only the number of its connection.
//!
//! A request that arrives at `a` starts at the later of `a` and the time at which the earliest worker is free. It is served one
//! service time later. Both times are known on arrival. A worker is free again at the computed time, not when the event loop
//! notices it: a late timer delays one reply and never reduces the capacity for the next request.

use crate::config::{Config, ServiceTime};
use clock::{Nanos, duration_ns};
use rand::SeedableRng;
use rand::distr::{Distribution, Uniform};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The workers and their queue.
#[derive(Debug)]
pub(crate) struct Service {
    times: Times,
    random: Xoshiro256PlusPlus,
    /// The time at which each worker is free.
    free: BinaryHeap<Reverse<Nanos>>,
    /// Requests that wait or are in service, the next to be served on top, with their sessions.
    present: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Sessions of served requests that have not been reported yet.
    served: VecDeque<usize>,
    last_arrival: Nanos,
}

/// The times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The start of its service.
    pub(crate) started: Nanos,
    /// The end of its service.
    pub(crate) served: Nanos,
    /// The number of requests that waited or were in service on its arrival.
    pub(crate) queue_length: u32,
}

/// A distribution to draw service times from.
#[derive(Clone, Copy, Debug)]
enum Times {
    None,
    Fixed(u64),
    Exponential(f64),
    Uniform(Uniform<u64>),
}

impl Service {
    /// Idle workers, for a configuration that has been checked.
    pub(crate) fn new(config: &Config) -> Service {
        Service {
            times: Times::new(config.service_time),
            random: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            free: (0..config.workers).map(|_| Reverse(Nanos::UNSET)).collect(),
            present: BinaryHeap::new(),
            served: VecDeque::new(),
            last_arrival: Nanos::UNSET,
        }
    }

    /// Adds a request to the queue. `None` if there is no service time: the request is served where it is read.
    pub(crate) fn admit(&mut self, arrival: Nanos, session: usize) -> Option<Slot> {
        let time_ns = self.times.draw(&mut self.random)?;
        // A session whose turn was cut short submits its arrivals late: they queue behind those admitted before.
        self.last_arrival = self.last_arrival.max(arrival);
        self.finish_until(self.last_arrival);
        let mut free = self.free.peek_mut()?;
        let started = free.0.max(self.last_arrival);
        let served = Nanos(started.0.saturating_add(time_ns));
        free.0 = served;
        let queue_length = u32::try_from(self.present.len()).unwrap_or(u32::MAX);
        self.present.push(Reverse((served, session)));
        Some(Slot { started, served, queue_length })
    }

    /// The number of requests that wait or are in service.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }

    /// The end of the next service.
    pub(crate) fn next_served(&self) -> Option<Nanos> {
        if self.served.is_empty() { self.present.peek().map(|next| next.0.0) } else { Some(Nanos::UNSET) }
    }

    /// The session of the next request that has been served by `now`; each request is reported once.
    pub(crate) fn take_served(&mut self, now: Nanos) -> Option<usize> {
        self.finish_until(now);
        self.served.pop_front()
    }

    fn finish_until(&mut self, now: Nanos) {
        while let Some(&Reverse((served, session))) = self.present.peek()
            && served <= now
        {
            self.present.pop();
            self.served.push_back(session);
        }
    }
}

impl Times {
    fn new(service_time: ServiceTime) -> Times {
        match service_time {
            ServiceTime::None => Times::None,
            ServiceTime::Fixed(time) => Times::Fixed(duration_ns(time)),
            ServiceTime::Exponential(mean) => Times::Exponential(duration_ns(mean) as f64),
            // The bounds have been checked; equal bounds are a constant.
            ServiceTime::Uniform(low, high) => Uniform::new_inclusive(duration_ns(low), duration_ns(high))
                .map_or(Times::Fixed(duration_ns(low)), Times::Uniform),
        }
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Option<u64> {
        match self {
            Times::None => None,
            Times::Fixed(time_ns) => Some(*time_ns),
            Times::Exponential(mean_ns) => {
                let unit: f64 = Exp1.sample(random);
                Some((unit * mean_ns).round() as u64)
            }
            Times::Uniform(uniform) => Some(uniform.sample(random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn service(service_time: ServiceTime, workers: usize) -> Service {
        Service::new(&Config { service_time, workers, seed: 7, ..Config::default() })
    }

    #[test]
    fn one_worker_serves_one_after_the_other() {
        let mut service = service(ServiceTime::Fixed(Duration::from_nanos(100)), 1);
        let slots: Vec<Slot> = [1000, 1010, 1150, 2000].map(|at| service.admit(Nanos(at), 0).unwrap()).to_vec();
        let expected = [(1000, 1100, 0), (1100, 1200, 1), (1200, 1300, 1), (2000, 2100, 0)];
        for (slot, (started, served, queue_length)) in slots.iter().zip(expected) {
            assert_eq!(*slot, Slot { started: Nanos(started), served: Nanos(served), queue_length });
        }
    }

    #[test]
    fn two_workers_serve_two_at_once() {
        let mut service = service(ServiceTime::Fixed(Duration::from_nanos(100)), 2);
        let served: Vec<u64> = (0..5).map(|_| service.admit(Nanos(1000), 0).unwrap().served.0).collect();
        assert_eq!(served, [1100, 1100, 1200, 1200, 1300]);
    }

    #[test]
    fn a_loop_that_polls_late_loses_no_capacity() {
        let mut service = service(ServiceTime::Fixed(Duration::from_nanos(100)), 1);
        service.admit(Nanos(1000), 0);
        service.admit(Nanos(1000), 1);
        assert_eq!(service.next_served(), Some(Nanos(1100)));
        assert_eq!(service.take_served(Nanos(1199)), Some(0));
        assert_eq!(service.take_served(Nanos(1199)), None);
        assert_eq!(service.admit(Nanos(1199), 2).unwrap().served, Nanos(1300));
        assert_eq!(service.take_served(Nanos(5000)), Some(1));
        assert_eq!(service.take_served(Nanos(5000)), Some(2));
        assert_eq!(service.next_served(), None);
    }

    #[test]
    fn without_a_service_time_requests_do_not_queue() {
        assert_eq!(service(ServiceTime::None, 1).admit(Nanos(5), 0), None);
    }

    #[test]
    fn the_same_seed_draws_the_same_times() {
        let draw = |seed| {
            let service_time = ServiceTime::Exponential(Duration::from_micros(200));
            let mut service = Service::new(&Config { service_time, seed, ..Config::default() });
            (0..100).map(|_| service.admit(Nanos(1), 0).unwrap().served.0).collect::<Vec<u64>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn drawn_times_have_the_expected_moments() {
        let us = Duration::from_micros;
        // Mean and standard deviation in microseconds.
        let table = [
            (ServiceTime::Fixed(us(200)), 200.0, 0.0),
            (ServiceTime::Exponential(us(200)), 200.0, 200.0),
            (ServiceTime::Uniform(us(100), us(300)), 200.0, 200.0 / 12f64.sqrt()),
        ];
        for (service_time, mean, deviation) in table {
            let times = Times::new(service_time);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
            let draws: Vec<f64> = (0..200_000).map(|_| times.draw(&mut random).unwrap() as f64 / 1000.0).collect();
            let measured = draws.iter().sum::<f64>() / draws.len() as f64;
            let square = draws.iter().map(|draw| (draw - measured).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((measured / mean - 1.0).abs() < 0.01, "{service_time}: mean {measured}");
            assert!((square.sqrt() - deviation).abs() <= 0.01 * mean, "{service_time}: deviation {}", square.sqrt());
        }
    }

    /// Erlang C: the probability that an arrival has to wait.
    fn erlang_c(workers: i32, load: f64) -> f64 {
        let term = |k: i32| (1..=k).fold(1.0, |product, i| product * load / f64::from(i));
        let last = term(workers) * f64::from(workers) / (f64::from(workers) - load);
        last / ((0..workers).map(term).sum::<f64>() + last)
    }

    #[test]
    fn poisson_arrivals_wait_as_erlang_c_predicts() {
        let mean_ns = 200_000.0;
        for workers in [1, 2, 8] {
            let utilisation = 0.7;
            let mut service = service(ServiceTime::Exponential(Duration::from_nanos(mean_ns as u64)), workers as usize);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
            let requests = 400_000;
            let (mut now, mut waited, mut busy, mut queued) = (1e9, 0.0, 0.0, 0.0);
            for _ in 0..requests {
                let unit: f64 = Exp1.sample(&mut random);
                now += unit * mean_ns / utilisation / f64::from(workers);
                let slot = service.admit(Nanos(now as u64), 0).unwrap();
                waited += slot.started.since(Nanos(now as u64)) as f64;
                busy += slot.served.since(slot.started) as f64;
                queued += f64::from(slot.queue_length);
            }
            let count = f64::from(requests);
            let measured_utilisation = busy / (now - 1e9) / f64::from(workers);
            assert!((measured_utilisation - utilisation).abs() < 0.01, "{workers}: {measured_utilisation}");
            let load = utilisation * f64::from(workers);
            let expected = erlang_c(workers, load) * mean_ns / (f64::from(workers) - load);
            assert!((waited / count / expected - 1.0).abs() < 0.05, "{workers}: {} not {expected}", waited / count);
            // Arrivals see time averages (PASTA), and Little's law gives the number present from the time in the system.
            let present = (expected + mean_ns) * load / mean_ns;
            assert!((queued / count / present - 1.0).abs() < 0.05, "{workers}: {} not {present}", queued / count);
        }
    }

    proptest! {
        #[test]
        fn work_is_conserved(
            gaps in proptest::collection::vec(0u64..300, 1..200),
            workers in 1usize..6,
            low in 0u64..100,
            width in 0u64..200,
        ) {
            let bounds = ServiceTime::Uniform(Duration::from_nanos(low), Duration::from_nanos(low + width));
            let mut service = service(bounds, workers);
            let mut now = Nanos(1);
            let mut slots: Vec<Slot> = Vec::new();
            for gap in gaps {
                now = Nanos(now.0 + gap);
                let slot = service.admit(now, slots.len()).unwrap();
                prop_assert!(slot.started >= now && slot.served.since(slot.started) >= low);
                prop_assert!(slots.last().is_none_or(|last| last.started <= slot.started), "first in, first out");
                let present = slots.iter().filter(|other| other.served > now).count();
                prop_assert_eq!(slot.queue_length as usize, present);
                // A request waits only if every worker is busy.
                prop_assert_eq!(slot.started > now, present >= workers);
                let busy = slots.iter().filter(|other| other.started <= slot.started && other.served > slot.started).count();
                prop_assert!(busy < workers);
                slots.push(slot);
            }
            let mut reported: Vec<usize> = std::iter::from_fn(|| service.take_served(Nanos::NEVER)).collect();
            prop_assert!(reported.windows(2).all(|pair| slots[pair[0]].served <= slots[pair[1]].served));
            reported.sort_unstable();
            prop_assert_eq!(reported, (0..slots.len()).collect::<Vec<_>>());
        }
    }
}
