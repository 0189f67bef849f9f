//! The arguments of a run that is distributed over agents, and which of the other arguments an agent receives.

use crate::command_line::host_port;
use crate::load_command::arguments::RunArguments;
use crate::load_command::output::OutputArguments;
use crate::load_command::secret::SecretArguments;
use crate::load_command::values::rate;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use load::Share;

/// Arguments about agents.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlArguments {
    /// Run a share of the load on this agent (`waystage load agent`). The flag can be repeated; see
    /// docs/load-agents.md. --clients, --rate and --requests are totals over all agents; --threads is the number of
    /// threads of each agent.
    #[arg(help_heading = "Agents", long = "agent", value_name = "HOST:PORT", value_parser = host_port)]
    pub(crate) agents: Vec<String>,
    /// Also measure from the controller, with an open loop of this rate in requests per second: this is what a lightly
    /// loaded client sees while the agents load the servers. Its results are a separate row, and its keys are its own.
    #[arg(help_heading = "Agents", long, value_name = "RATE", value_parser = rate, requires = "agents")]
    pub(crate) measure_locally: Option<f64>,
    #[command(flatten)]
    pub(crate) secret: SecretArguments,
}

/// Arguments that an agent receives unchanged.
const UNCHANGED: [&str; 32] = [
    "spin",
    "servers",
    "distribution",
    "protocol",
    "arrivals",
    "threads",
    "ratio",
    "data_size",
    "key_size",
    "key_pattern",
    "key_prefix",
    "multi_key_get",
    "pipeline",
    "test_time",
    "warm_up",
    "think_time",
    "noreply",
    "reply_timeout",
    "expect_hit_ratio",
    "failed_max",
    "achieved_min",
    "messages",
    "operations",
    "queues",
    "keep",
    "no_verify",
    "any_order",
    "drain_time",
    "lease",
    "after_receive",
    "redelivery_time",
    "attempts",
];
/// Arguments of which each agent receives its share.
const DIVIDED: [&str; 7] = ["rate", "clients", "requests", "seed", "key_minimum", "key_maximum", "no_prefill"];
/// Arguments for the controller only, besides those for the output.
const CONTROLLER_ONLY: [&str; 5] = ["agents", "measure_locally", "secret_file", "insecure", "quiet"];

impl ControlArguments {
    /// Whether the run is distributed over agents.
    pub(crate) fn is_given(&self) -> bool {
        !self.agents.is_empty()
    }
}

/// The arguments of a load, as a controller and its agents parse them.
pub(crate) fn parser() -> Command {
    let command = Command::new("waystage load").no_binary_name(true).disable_help_flag(true);
    ControlArguments::augment_args(RunArguments::augment_args(command))
}

/// Parses the arguments of a load. An error is one line.
pub(crate) fn parse(arguments: &[String]) -> Result<(ArgMatches, RunArguments), String> {
    let matches = parser().try_get_matches_from(arguments).map_err(|error| crate::one_line(&error))?;
    let parsed = RunArguments::from_arg_matches(&matches).map_err(|error| crate::one_line(&error))?;
    Ok((matches, parsed))
}

/// The first argument that cannot be used with agents, if there is one.
pub(crate) fn not_for_agents(matches: &ArgMatches) -> Option<String> {
    let output = output_names();
    given(matches)
        .find(|argument| {
            let name = argument.get_id().as_str();
            !UNCHANGED.contains(&name)
                && !DIVIDED.contains(&name)
                && !output.iter().any(|known| known == name)
                && !CONTROLLER_ONLY.contains(&name)
        })
        .map(|argument| flag(&argument))
}

/// The first argument that a controller never sends, if there is one.
pub(crate) fn not_from_controllers(matches: &ArgMatches) -> Option<String> {
    let is_ours = |name: &str| UNCHANGED.contains(&name) || DIVIDED.contains(&name);
    given(matches).find(|argument| !is_ours(argument.get_id().as_str())).map(|argument| flag(&argument))
}

/// The arguments for one share of a run: those passed on unchanged, and the share.
pub(crate) fn remote(matches: &ArgMatches, share: &Share) -> Vec<String> {
    let mut words = Vec::new();
    for argument in given(matches).filter(|argument| UNCHANGED.contains(&argument.get_id().as_str())) {
        let name = flag(&argument);
        if !argument.get_action().takes_values() {
            words.push(name);
            continue;
        }
        for value in matches.get_raw(argument.get_id().as_str()).into_iter().flatten() {
            words.push(format!("{name}={}", value.to_string_lossy()));
        }
    }
    words.extend(share.rate_per_s.map(|per_s| format!("--rate={per_s}")));
    words.extend(share.requests.map(|requests| format!("--requests={requests}")));
    words.push(format!("--clients={}", share.clients));
    words.push(format!("--seed={}", share.seed));
    words.push(format!("--key-minimum={}", share.key_minimum));
    words.push(format!("--key-maximum={}", share.key_maximum));
    if !share.prefill {
        words.push("--no-prefill".into());
    }
    words
}

/// The arguments given on the command line.
fn given(matches: &ArgMatches) -> impl Iterator<Item = clap::Arg> {
    let arguments: Vec<clap::Arg> = parser().get_arguments().cloned().collect();
    arguments
        .into_iter()
        .filter(|argument| matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine))
}

fn flag(argument: &clap::Arg) -> String {
    format!("--{}", argument.get_long().unwrap_or(argument.get_id().as_str()))
}

fn output_names() -> Vec<String> {
    let command = OutputArguments::augment_args(Command::new("output"));
    command.get_arguments().map(|argument| argument.get_id().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rejected with --agent: each agent would have its own.
    const REFUSED: [&str; 12] = [
        "records",
        "sample",
        "metrics",
        "seconds_file",
        "trace",
        "trace_timing",
        "trace_bunched",
        "trace_errors_max",
        "trace_rows",
        "queue_prefix",
        "prefill",
        "token_file",
    ];

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    fn share() -> Share {
        Share {
            clients: 25,
            rate_per_s: Some(0.5),
            requests: None,
            seed: 7,
            key_minimum: 10,
            key_maximum: 19,
            prefill: false,
        }
    }

    #[test]
    fn every_argument_is_in_one_of_the_lists() {
        let mut output = output_names();
        output.extend(
            [UNCHANGED.as_slice(), &DIVIDED, &CONTROLLER_ONLY, &REFUSED].concat().iter().map(|name| (*name).into()),
        );
        for argument in parser().get_arguments() {
            let decided = output.iter().filter(|name| *name == argument.get_id().as_str()).count();
            assert_eq!(decided, 1, "put {} into one of the lists of this file", argument.get_id());
        }
    }

    #[test]
    fn an_agent_receives_common_arguments_and_its_share() {
        let given = "--server a:1 --server=b:2 --agent x:1 --ratio 1:4 --noreply --clients 50 --rate 1 --seed 3 --quiet \
                     --json-out-file /tmp/a";
        let (matches, _) = parse(&words(given)).unwrap();
        let remote = remote(&matches, &share());
        let expected = "--server=a:1 --server=b:2 --ratio=1:4 --noreply --rate=0.5 --clients=25 --seed=7 --key-minimum=10 \
                        --key-maximum=19 --no-prefill";
        let (mut sorted, mut expected) = (remote.clone(), words(expected));
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected);
        let (matches, parsed) = parse(&remote).unwrap();
        assert_eq!((not_from_controllers(&matches), not_for_agents(&matches)), (None, None));
        let config = parsed.config();
        assert_eq!((config.clients, config.key_minimum, config.prefill, config.noreply), (25, 10, false, true));
        assert_eq!((config.servers, config.arrivals.per_s()), (words("a:1 b:2"), Some(0.5)));
    }

    #[test]
    fn rejected_arguments_are_named() {
        let named = |text: &str| not_for_agents(&parse(&words(text)).unwrap().0);
        assert_eq!(named("--server a:1 --agent x:1 --records /tmp"), Some("--records".into()));
        assert_eq!(named("--server a:1 --agent x:1 --json-out-file /tmp/a"), None);
        let sent = |text: &str| not_from_controllers(&parse(&words(text)).unwrap().0);
        assert_eq!(sent("--server a:1 --json-out-file /tmp/a"), Some("--json-out-file".into()));
        assert_eq!(sent("--server a:1 --agent x:1"), Some("--agent".into()));
        assert!(parse(&words("merge a.json")).is_err_and(|line| line.contains("merge")));
        assert!(parse(&words("--server a:1 --bananas")).is_err_and(|line| line.contains("--bananas")));
    }
}
