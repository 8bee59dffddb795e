//! `tidegate serve` and `tidegate demo`.

use std::io::IsTerminal;

use engine::{on_reload_signal, on_shutdown_signal};
use server::config::load;
use server::{Config, Server};
use webhooks::Plan;

use crate::args::{Remote, ServeArgs};
use crate::{Failure, Outcome, feed};

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    start(args)?.wait();
    Ok(())
}

/// A server, and the feed in a thread beside it that publishes like any other client.
pub(crate) fn demo(args: &ServeArgs) -> Outcome {
    let server = start(args)?;
    let address = server.address();
    println!(
        "Open http://{address}/ in a browser: this machine's readings and a synthetic market."
    );
    println!("Or: tidegate sub 'markets/ftse/+' --server ws://{address}");
    let remote = Remote { server: format!("ws://{address}"), token: None, json: false };
    std::thread::Builder::new()
        .name("feed".into())
        .spawn(move || {
            if let Err((_, text)) = feed::feed(&remote) {
                eprintln!("tidegate: the feed ended: {text}");
            }
        })
        .map_err(|error| (Failure::Other, format!("cannot start the feed: {error}")))?;
    server.wait();
    Ok(())
}

fn start(args: &ServeArgs) -> Result<Server, (Failure, String)> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let mut config = match &args.config {
        Some(file) => load(file).map_err(|error| (Failure::BadConfig, error.to_string()))?,
        None => Config::default(),
    };
    config.listen = args.listen.unwrap_or(config.listen);
    config.engine.shards = args.shards.filter(|count| *count > 0).or(config.engine.shards);
    // Watched for before anybody can connect: a signal during the start waits for the end of it.
    let (tell, hear) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
    on_shutdown_signal(move || {
        if let Ok(stop) = hear.recv() {
            stop();
        }
    })
    .map_err(|error| (Failure::Other, format!("cannot watch for signals: {error}")))?;
    let plan = Plan::new(&mut config).map_err(|error| (Failure::BadConfig, error.to_string()))?;
    let server = Server::start(config).map_err(|error| (Failure::Other, error.to_string()))?;
    let webhooks = plan.start(&server).map_err(|error| (Failure::Other, error.to_string()))?;
    let stop_server = server.stopper();
    // The watching thread listens as long as the process lives.
    let _ = tell.send(Box::new(move || {
        webhooks.stop();
        stop_server();
    }));
    if let Some(file) = args.config.clone() {
        let reload = server.reloader();
        on_reload_signal(move || match load(&file) {
            Ok(config) => reload(&config),
            Err(error) => tracing::error!("not taken over: {error}"),
        })
        .map_err(|error| (Failure::Other, format!("cannot watch for signals: {error}")))?;
    }
    Ok(server)
}
