//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use std::num::NonZeroU32;

use clap::{Parser, Subcommand, ValueEnum};

use crate::log_level::LogLevel;

/// Real-time data push server: live data from publishers to millions of clients.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no connection, 4 refused by the server,
/// 5 wrong configuration.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

/// Which server a command speaks to.
#[derive(Debug, clap::Args)]
pub(crate) struct Remote {
    /// The server to speak to: a URL, or HOST:PORT.
    #[arg(long, default_value = "ws://127.0.0.1:8470", env = "TIDEGATE_SERVER", value_parser = server_of)]
    pub server: String,
    /// The token to present.
    #[arg(long, env = "TIDEGATE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A PEM file of the authorities that the server's certificate may be of, instead of the system's (wss://, https://).
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    pub ca: Option<PathBuf>,
}

/// How a command prints what it got.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// Prints JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// Reads where a server is.
fn server_of(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        None if text.is_empty() => Err("it is empty; write such as localhost:8470".into()),
        None => Ok(format!("ws://{text}")),
        Some(("ws" | "http" | "wss" | "https", rest)) if !rest.is_empty() => Ok(text.into()),
        Some(_) => {
            Err("it is not the address of a server; write such as ws://localhost:8470".into())
        }
    }
}

/// Reads where to listen: an address or a name of this machine, and a port.
fn address_of(text: &str) -> Result<SocketAddr, String> {
    server::config::address_of(text).map_err(|why| format!("it {why}"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Starts a server.
    Serve(ServeArgs),
    /// Starts a server and a live feed, to have something to see.
    Demo(ServeArgs),
    /// Publishes the live feed to a server.
    Feed(FeedArgs),
    /// Publishes to a topic.
    #[command(visible_alias = "publish")]
    Pub(PubArgs),
    /// Subscribes and prints what comes.
    #[command(visible_alias = "subscribe")]
    Sub(SubArgs),
    /// Prints the newest value of a topic.
    Get(GetArgs),
    /// Lists topics and how far each has come.
    #[command(visible_alias = "ls")]
    Topics(TopicsArgs),
    /// Prints what is kept of a topic.
    History(HistoryArgs),
    /// Asks whoever handles a topic, and prints the answer.
    Request(RequestArgs),
    /// Answers requests by running a command for each.
    Handle(HandleArgs),
    /// Says how a server is: whether it serves, and its numbers.
    Status(StatusArgs),
    /// Lists who is connected.
    Sessions(SessionsArgs),
    /// Shows who is furthest behind.
    Slow(SlowArgs),
    /// Shows a server at work, on one screen.
    Top(TopArgs),
    /// Simulates devices.
    Devices(DevicesArgs),
    /// Shows or checks configuration.
    Config(ConfigArgs),
    /// Cares for a store that no server has open: checks, repairs, copies it.
    Store(StoreArgs),
    /// Measures a server of its own (`bench list` names the scenarios).
    Bench(BenchArgs),
    /// Prints what completes these commands in a shell, such as `source <(tidegate completions bash)`.
    Completions(CompletionsArgs),
    /// Prints the manual page, such as for `tidegate man | man -l -`.
    Man(ManArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct FeedArgs {
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopicsArgs {
    /// Which ones: a topic or a pattern (`+` one level, `#` the rest).
    #[arg(default_value = "#")]
    pub selector: String,
    /// At most so many, by name.
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
    /// Only those after this name.
    #[arg(long, value_name = "TOPIC")]
    pub after: Option<String>,
    /// With the newest value of each.
    #[arg(long)]
    pub values: bool,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// The topic.
    pub topic: String,
    /// The newest so many [default: 10].
    #[arg(long, value_name = "COUNT")]
    pub last: Option<u64>,
    /// Those after this sequence, up to --limit.
    #[arg(long, value_name = "SEQUENCE", conflicts_with_all = ["last", "since"])]
    pub after: Option<u64>,
    /// Those since then: 10m, 2h, 2026-01-31T12:00:00Z, or milliseconds since 1970; up to --limit.
    #[arg(long, value_name = "WHEN", conflicts_with = "last", value_parser = crate::since::since)]
    pub since: Option<u64>,
    /// At most so many.
    #[arg(long, default_value_t = 1_000)]
    pub limit: u64,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
    /// Go on where the list before ended.
    #[arg(long, value_name = "PLACE")]
    pub after: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Milliseconds between two looks.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub interval_ms: u64,
    /// Ends after so many screens; runs until it is stopped unless given.
    #[arg(long)]
    pub count: Option<u64>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SlowArgs {
    /// At most so many.
    #[arg(long, default_value_t = 10)]
    pub limit: usize,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// A directory for a page of each command, instead of one page on standard output.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevicesArgs {
    #[command(subcommand)]
    pub verb: DevicesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevicesVerb {
    /// Attaches devices that send heartbeats and answer what they are asked.
    Simulate(SimulateArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// How many; they are called d0, d1, and so on.
    #[arg(long, default_value_t = 100)]
    pub count: usize,
    /// The application that they belong to.
    #[arg(long)]
    pub application: String,
    /// A key of it with the role "device".
    #[arg(long, env = "TIDEGATE_KEY", hide_env_values = true)]
    pub key: String,
    /// Bytes in an answer.
    #[arg(long, default_value_t = 32)]
    pub answer_bytes: usize,
    /// Milliseconds that a device thinks about an answer.
    #[arg(long, default_value_t = 0)]
    pub think_ms: u64,
    /// Milliseconds between two heartbeats of a device.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub heartbeat_ms: u64,
    /// Ends after so many seconds; runs until it is stopped unless given.
    #[arg(long)]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub verb: StoreVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Reads everything, as a start does, and says what is damaged; exit code 1 if something is.
    Check {
        /// The directory that store.path names.
        path: PathBuf,
    },
    /// Makes a new log of all that is whole, and says what is lost; the old one stays as log.damaged.
    Repair {
        /// The directory that store.path names.
        path: PathBuf,
    },
    /// Copies a store to a directory that is not there yet.
    Backup {
        /// The directory that store.path names.
        path: PathBuf,
        /// Where the copy goes.
        copy: PathBuf,
    },
    /// Puts a backup back; the next start begins a new epoch.
    Restore {
        /// The backup.
        copy: PathBuf,
        /// The directory that store.path names; it is not there yet.
        path: PathBuf,
    },
    /// Keeps the epoch of a store that was moved here: to be run before the first start.
    Adopt {
        /// The directory that store.path names.
        path: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// A scenario, `list` for all of them, or `compare` with two JSON files.
    #[arg(default_value = ::bench::QUICK)]
    pub scenario: String,
    /// The two reports to compare.
    pub reports: Vec<PathBuf>,
    /// Clients, as a share of the reference's (1.0 is all of them); `auto` fits this machine.
    #[arg(long, default_value = "auto")]
    pub scale: String,
    /// A server that runs already, such as ws://10.0.0.5:8470; one of our own otherwise.
    #[arg(long)]
    pub target: Option<String>,
    /// The start program of a peer, such as bench/peers/nats/start.
    #[arg(long, conflicts_with = "target")]
    pub peer: Option<PathBuf>,
    /// Seconds of measuring, after warming up.
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<u64>,
    /// A folder for the JSON file and the HTML page.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Clients, whatever the scale.
    #[arg(long)]
    pub clients: Option<usize>,
    /// Topics.
    #[arg(long)]
    pub topics: Option<usize>,
    /// Messages per topic and second.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Bytes in a payload.
    #[arg(long)]
    pub bytes: Option<usize>,
    /// Gives each client a topic of its own.
    #[arg(long)]
    pub own_topic: bool,
    /// Turns audiences off, to measure what they are worth.
    #[arg(long)]
    pub no_audiences: bool,
    #[command(flatten)]
    pub output: Output,
}

/// The server's log, on standard error.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// How: lines of text, or an object of JSON on each line.
    #[arg(long = "log-format", value_enum, default_value_t, env = "TIDEGATE_LOG_FORMAT")]
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

fn origin_of(text: &str) -> Result<String, String> {
    server::config::check_origin(text).map(|()| text.to_owned()).map_err(|why| format!("it {why}"))
}

/// The settings of a server. Environment variables set them as well: docs/configuration.md.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SettingsArgs {
    /// The configuration file.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Where to listen, instead of what the configuration says: an address or a name of this machine, and a port.
    #[arg(long, value_name = "HOST:PORT", value_parser = address_of)]
    pub listen: Option<SocketAddr>,
    /// How many shards, instead of what the configuration says.
    #[arg(long)]
    pub shards: Option<u16>,
    /// Lets pages of this origin connect, besides those that the configuration lists: http://localhost:5173, `loopback`
    /// for all pages of your own machine, `*` for any; may be given more than once.
    #[arg(long = "origin", value_name = "ORIGIN", value_parser = origin_of)]
    pub origins: Vec<String>,
    /// The level of the log, instead of what the configuration says: off, error, warn, info, debug or trace; also by part:
    /// info,webhooks=debug.
    #[arg(long = "log-level", value_name = "LEVEL", env = "TIDEGATE_LOG")]
    pub log_level: Option<LogLevel>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PubArgs {
    /// The topic.
    pub topic: String,
    /// The payload; `-` (or nothing) publishes standard input, one line one publication.
    #[arg(default_value = "-")]
    pub data: String,
    /// The payload is text, also if it looks like JSON.
    #[arg(long, conflicts_with = "bytes")]
    pub text: bool,
    /// The payload is bytes.
    #[arg(long)]
    pub bytes: bool,
    /// An idempotency key: a repeated publication with it counts once. With `-`, each line's number is
    /// added to it.
    #[arg(long)]
    pub key: Option<String>,
    /// A header, such as unit=EUR; again for each further one. A JSON number, true and false are such values, all else is text.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubArgs {
    /// Topics or patterns (`+` one level, `#` the rest).
    #[arg(required = true)]
    pub selectors: Vec<String>,
    /// Where to start: snapshot, now, all, or last:N [default: snapshot; with --name: all].
    #[arg(long)]
    pub from: Option<String>,
    /// Remembers on the server how far it came: the next one of this name starts there.
    #[arg(long)]
    pub name: Option<String>,
    /// Ends after so many publications.
    #[arg(long)]
    pub count: Option<u64>,
    /// The publications that may be skipped: off, lagging (while behind), always (with --interval-ms), or unsubscribe.
    #[arg(long, default_value = "off")]
    pub conflation: String,
    /// Milliseconds between two batches at least.
    #[arg(long, default_value_t = 0)]
    pub interval_ms: u64,
    /// How differences are told, instead of whole values: none, vcdiff or json-patch.
    #[arg(long, default_value = "none")]
    pub delta: String,
    /// Only what this CEL expression accepts, such as "data.price > 100.0".
    #[arg(long)]
    pub filter: Option<String>,
    /// Prints the headers of each publication, too (with --json, they always are).
    #[arg(long)]
    pub headers: bool,
    /// Asks when each was published, and prints it.
    #[arg(long)]
    pub time: bool,
    /// Asks who published each, where the server records that, and prints it.
    #[arg(long)]
    pub principal: bool,
    /// Bytes a second that the server sends at most.
    #[arg(long)]
    pub bytes_per_second: Option<NonZeroU32>,
    /// Publications a second that the server sends at most.
    #[arg(long)]
    pub messages_per_second: Option<NonZeroU32>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The topic.
    pub topic: String,
    /// Waits so many milliseconds for a value, if there is none yet.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub wait_ms: u64,
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    /// The topic.
    pub topic: String,
    /// The payload.
    #[arg(default_value = "null")]
    pub data: String,
    /// The payload is text, also if it looks like JSON.
    #[arg(long)]
    pub text: bool,
    /// Milliseconds that the answer may take.
    #[arg(long, default_value_t = 10_000)]
    pub timeout_ms: u64,
    /// An idempotency key: a repeated request with it is carried out once. It is sent again after a break.
    #[arg(long)]
    pub key: Option<String>,
    /// Only who this CEL expression over `session`, `principal` and `client` accepts.
    #[arg(long)]
    pub filter: Option<String>,
    /// Asks all who handle the topic, not one: prints a line for each answer.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HandleArgs {
    /// Topics or patterns (`+` one level, `#` the rest).
    #[arg(required_unless_present = "device")]
    pub selectors: Vec<String>,
    /// Be this device, APPLICATION/DEVICE, instead of topics or beside them.
    #[arg(long)]
    pub device: Option<String>,
    /// The device's key; without, the token must be one that may handle `devices/APPLICATION/DEVICE`.
    #[arg(long, env = "TIDEGATE_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// A shell command, run for each request: it reads the payload on standard input, and what it prints is the
    /// answer. TIDEGATE_TOPIC and TIDEGATE_PRINCIPAL say what and who. One that fails declines, with what it printed
    /// on standard error.
    #[arg(long, value_name = "COMMAND")]
    pub exec: String,
    /// Requests that may be open, so commands that run, at a time.
    #[arg(long, default_value_t = 16)]
    pub concurrency: usize,
    /// Bytes that the payload of a request may have; the server's limit unless set.
    #[arg(long, value_name = "BYTES")]
    pub payload_bytes_max: Option<usize>,
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Prints a complete configuration file with every default.
    Default,
    /// Prints what every setting means, its default, and what a reload does with it, as Markdown.
    Doc,
    /// Prints every setting that goes for a server started like this, and who says it: a flag, an environment variable, a
    /// line of the file, or nobody (the default). Secrets are masked.
    Show(SettingsArgs),
    /// Checks a configuration file.
    Check {
        /// The file.
        file: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
