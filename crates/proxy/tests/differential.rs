//! Random commands of both protocols, valid and invalid, in random pieces: a server behind the proxy replies, byte for byte, as one
//! without it, in every discipline. `WAYSTAGE_DIFFERENTIAL_COMMANDS` is the number of commands, `WAYSTAGE_DIFFERENTIAL_SEED`
//! the seed. A difference is reduced to the shortest conversation that shows it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/deviations.rs"]
mod deviations;
#[path = "common/exchange.rs"]
mod exchange;
#[path = "common/random.rs"]
mod random;
#[path = "common/random_meta.rs"]
mod random_meta;
#[path = "common/random_text.rs"]
mod random_text;

use clock::Clock;
use common::{Proxy, disciplines};
use exchange::{Conversation, Side};
use proxy::{Discipline, RouteConfig};
use random::Random;
use random_text::{Command, Ending};
use std::time::Duration;
use testkit::{Server, memcached_is_here};

const COMMANDS: usize = 12_000;
const COMMANDS_PER_ROUND: usize = 40;
/// The timeout of a reply, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout of a reply when a difference was found, and the conversation is only to be shortened.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
const SHRINKING_MAX: Duration = Duration::from_secs(60);

/// A server, and an identical server behind a proxy.
struct Pair {
    server: Server,
    proxy: Proxy,
}

/// One configuration of the proxy, and its share of the commands.
struct Setting {
    discipline: Discipline,
    slots: usize,
    start: fn() -> Server,
    commands: usize,
    is_memcached: bool,
    /// Routes change most keys. They keep their length, which memcached returns as a part of the size of an item.
    has_rewrites: bool,
}

/// Prefixes of the random keys, and what servers receive in their place. No other key begins like this.
const REWRITES: &[(&str, &str)] = &[("k", "K"), ("fo", "Fu"), ("n", "N"), ("z", "Z"), ("q", "Q"), ("\u{e9}", "\u{e8}")];

impl Setting {
    fn pair(&self) -> Pair {
        let proxy = Proxy::before(vec![(self.start)()], |config| {
            (config.loops, config.discipline) = (1, self.discipline);
            // Timeouts are not part of this test.
            config.pools[0].timeouts = proxy::Timeouts::all(2 * PATIENCE);
            let rewrites = REWRITES.iter().filter(|_| self.has_rewrites);
            let route = |(prefix, replacement): &(&str, &str)| RouteConfig {
                replace_prefix: Some((*replacement).into()),
                ..RouteConfig::new(prefix, &config.pools[0].name)
            };
            config.routes = rewrites.map(route).collect();
        });
        Pair { server: (self.start)(), proxy }
    }

    fn conversation(&self, random: &mut Random) -> Conversation {
        let rounds = (0..1 + random.below(4)).map(|round| {
            let count = 1 + random.below(2 * COMMANDS_PER_ROUND);
            (0..count).map(|index| self.command(random, round > 0 && index == 0)).collect()
        });
        Conversation { rounds: rounds.collect(), ending: Ending::any(random) }
    }

    fn command(&self, random: &mut Random, is_first: bool) -> Command {
        if random.one_in(2) {
            let command = random_text::command(random, is_first);
            // The embedded cache does not have memcached's faults.
            return if self.is_memcached { command } else { Command::new(command.to_proxy) };
        }
        let text = random_meta::command(random);
        // Which of several reads in flight wins the right to recache a stale value is not defined.
        Command::new(if self.slots > 1 { text.replace(" I", "") } else { text })
    }

    /// Has conversations with both servers until all commands are sent.
    fn run(&self, seed: u64, server: &str) {
        let pair = self.pair();
        let (mut random, mut sent, mut number) = (Random(seed), 0, 0);
        while sent < self.commands {
            let conversation = self.conversation(&mut random);
            if let Some(difference) = pair.differs(&conversation, &mut random, PATIENCE) {
                let (short, difference) = self.shrunk(conversation, difference);
                panic!(
                    "{server}, seed {seed}, conversation {number}: {difference}\n of {} commands were needed:\n{}",
                    short.commands(),
                    listing(&short)
                );
            }
            sent += conversation.commands();
            number += 1;
        }
        eprintln!("{server}, seed {seed}: {sent} random commands were answered alike with and without the proxy");
    }

    /// The shortest conversation that differs with fresh servers, and the difference.
    fn shrunk(&self, mut conversation: Conversation, mut difference: String) -> (Conversation, String) {
        let clock = Clock::monotonic();
        let until = clock.now() + SHRINKING_MAX;
        let fails = |conversation: &Conversation| {
            // Pieces and pauses may matter, so the conversation is tried in one piece and in others.
            (0..3).find_map(|seed| self.pair().differs(conversation, &mut Random(seed), SHORT_PATIENCE))
        };
        let mut size = conversation.commands().div_ceil(2);
        while size > 0 && clock.now() < until {
            let mut at = 0;
            while at < conversation.commands() && clock.now() < until {
                let shorter = without(&conversation, at, size);
                match fails(&shorter) {
                    Some(found) => (conversation, difference) = (shorter, found),
                    None => at += size,
                }
            }
            size /= 2;
        }
        (conversation, difference)
    }
}

impl Pair {
    /// How the replies of the two differ, if they do.
    fn differs(&self, conversation: &Conversation, pieces: &mut Random, patience: Duration) -> Option<String> {
        let plain = conversation.run(self.server.address(), Side::Server, pieces, patience);
        let proxied = conversation.run(self.proxy.address, Side::Proxy, pieces, patience);
        match (plain, proxied) {
            (Ok(plain), Ok(proxied)) => first_difference(&plain.concat(), &proxied.concat()),
            (plain, proxied) => {
                let outcome =
                    |side: Result<Vec<Vec<u8>>, String>| side.map_or_else(|error| error, |_| "answered".into());
                Some(format!("\n server {}\n  proxy {}", outcome(plain), outcome(proxied)))
            }
        }
    }
}

/// The conversation without `count` commands from this one on.
fn without(conversation: &Conversation, at: usize, count: usize) -> Conversation {
    let (mut index, mut shorter) = (0, conversation.clone());
    for round in &mut shorter.rounds {
        round.retain(|_| {
            index += 1;
            !(at..at + count).contains(&(index - 1))
        });
    }
    shorter
}

fn listing(conversation: &Conversation) -> String {
    let rounds = conversation.rounds.iter().enumerate().flat_map(|(number, round)| {
        round.iter().map(move |command| format!("  round {number}: {:?}\n", String::from_utf8_lossy(&command.to_proxy)))
    });
    rounds.collect::<String>() + &format!("  {:?}", conversation.ending)
}

fn first_difference(plain: &[u8], proxied: &[u8]) -> Option<String> {
    if plain == proxied {
        return None;
    }
    let at = plain.iter().zip(proxied).take_while(|(left, right)| left == right).count();
    let near = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.saturating_sub(200)..(at + 100).min(bytes.len())]).into_owned()
    };
    Some(format!("at byte {at} of the replies\n server {:?}\n  proxy {:?}", near(plain), near(proxied)))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

/// Every discipline, with one slot and with several, and one with changed keys. Half of the commands go to the first one, which has no
/// slots.
fn run(start: fn() -> Server, is_memcached: bool, server: &str) {
    let commands = number("WAYSTAGE_DIFFERENTIAL_COMMANDS", COMMANDS as u64) as usize;
    let seed = number("WAYSTAGE_DIFFERENTIAL_SEED", 1);
    let mut settings: Vec<Setting> = Vec::new();
    for slots in [1, 3] {
        for discipline in disciplines(slots, true).into_iter().skip(usize::from(slots > 1)) {
            settings.push(Setting { discipline, slots, start, commands: 0, is_memcached, has_rewrites: false });
        }
    }
    let discipline = settings[0].discipline;
    settings.push(Setting { discipline, slots: 1, start, commands: 0, is_memcached, has_rewrites: true });
    let others = settings.len() - 1;
    for (index, setting) in settings.iter_mut().enumerate() {
        setting.commands = if index == 0 { commands / 2 } else { commands / 2 / others };
        let rewrites = if setting.has_rewrites { ", changed keys" } else { "" };
        setting.run(seed + index as u64, &format!("{server}, {:?}{rewrites}", setting.discipline));
    }
}

#[test]
fn the_embedded_cache_answers_alike_with_and_without_the_proxy() {
    run(Server::embedded, false, "the embedded cache");
}

#[test]
fn memcached_answers_alike_with_and_without_the_proxy() {
    if memcached_is_here() {
        run(Server::memcached, true, "memcached");
    }
}
