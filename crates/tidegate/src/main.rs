//! The `tidegate` program: a server, and the tools to talk to one.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod config;
mod devices;
mod feed;
mod get;
mod handle;
mod payload;
mod publish;
mod request;
mod serve;
mod subscribe;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Verb};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why the program ends, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// 1: anything else.
    Other = 1,
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
        Verb::Feed => feed::feed(&args.remote),
        Verb::Pub(publish) => publish::publish(&args.remote, &publish),
        Verb::Sub(subscribe) => subscribe::subscribe(&args.remote, &subscribe),
        Verb::Get(get) => get::get(&args.remote, &get),
        Verb::Request(request) => request::request(&args.remote, &request),
        Verb::Handle(handle) => handle::handle(&args.remote, &handle),
        Verb::Devices(devices) => devices::devices(&args.remote, &devices),
        Verb::Config(config) => config::config(&config),
        Verb::Bench(bench) => bench::bench(&args.remote, &bench),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((failure, text)) => {
            eprintln!("tidegate: {text}");
            ExitCode::from(failure as u8)
        }
    }
}

/// What a command answers with: nothing, or why it failed.
pub(crate) type Outcome = Result<(), (Failure, String)>;

/// Ends quietly when whoever reads our output has gone (`tidegate sub … | head -1`).
pub(crate) fn print_line(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
