//! The `tidegate` program: a server, and the tools to talk to one.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod config;
mod devices;
mod feed;
mod get;
mod handle;
mod help;
mod history;
mod http;
mod log;
mod log_level;
mod payload;
mod publish;
mod request;
mod serve;
mod sessions;
mod since;
mod slow;
mod status;
mod store;
mod subscribe;
mod top;
mod topics;
mod usage;

use std::process::ExitCode;

use clap::Parser;
use engine::CountingAllocator;

use crate::args::{Args, Verb};

#[global_allocator]
static ALLOCATOR: CountingAllocator<mimalloc::MiMalloc> = CountingAllocator(mimalloc::MiMalloc);

/// Why the program ends, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// 1: anything else.
    Other = 1,
    /// 2: wrong usage.
    Usage = 2,
    /// 3: no connection.
    NoConnection = 3,
    /// 4: the server refused.
    Refused = 4,
    /// 5: the configuration is wrong.
    BadConfig = 5,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.verb {
        Verb::Serve(serve) => serve::serve(&serve),
        Verb::Demo(serve) => serve::demo(&serve),
        Verb::Feed(feed) => feed::feed(&feed.remote),
        Verb::Pub(publish) => publish::publish(&publish),
        Verb::Sub(subscribe) => subscribe::subscribe(&subscribe),
        Verb::Get(get) => get::get(&get),
        Verb::Topics(topics) => topics::topics(&topics),
        Verb::History(history) => history::history(&history),
        Verb::Request(request) => request::request(&request),
        Verb::Handle(handle) => handle::handle(&handle),
        Verb::Status(status) => status::status(&status),
        Verb::Sessions(sessions) => sessions::sessions(&sessions),
        Verb::Slow(slow) => slow::slow(&slow),
        Verb::Top(top) => top::top(&top),
        Verb::Devices(devices) => devices::devices(&devices),
        Verb::Config(config) => config::config(&config),
        Verb::Store(store) => store::store(&store),
        Verb::Bench(bench) => bench::bench(&bench),
        Verb::Completions(shell) => help::completions(&shell),
        Verb::Man(man) => help::man(&man),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, text)) => {
            if !text.is_empty() {
                eprintln!("tidegate: {text}");
            }
            ExitCode::from(failure as u8)
        }
    }
}

/// The result of a command: nothing, or the reason of its failure.
pub(crate) type Outcome = Result<(), (Failure, String)>;

/// Prints a line. Ends the program where that is not possible: quietly if whoever reads our output has gone
/// (`tidegate sub … | head -1`), else with a word.
pub(crate) fn print_line(line: &str) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("tidegate: cannot write to standard output: {error}; check where it goes");
            std::process::exit(Failure::Other as i32);
        }
    }
}
