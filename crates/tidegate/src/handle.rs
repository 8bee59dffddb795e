//! `tidegate handle`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use client::{Ticket, Update};
use model::{Asked, Attach, Capacity, Handle, Limits, Payload, Selector};

use crate::args::{HandleArgs, Remote};
use crate::payload::{Said, kind_of};
use crate::publish::{connect, failure_of};
use crate::{Failure, Outcome};

/// How soon an answer is noticed while commands run.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const NOTHING_RUNS: Duration = Duration::from_secs(3600);

/// What a command said, or why it failed.
type Answer = Result<Arc<Payload>, Box<str>>;

/// Runs a command for each request; ends when the server refuses.
pub(crate) fn handle(remote: &Remote, args: &HandleArgs) -> Outcome {
    let selectors = args.selectors.iter().map(|text| Selector::parse(text, &Limits::default()));
    let selectors: Vec<Selector> = selectors
        .collect::<Result<_, _>>()
        .map_err(|error| (Failure::Refused, error.to_string()))?;
    let mut client = connect(remote)?;
    let (concurrency, payload_bytes_max) = (args.concurrency, args.payload_bytes_max);
    if !selectors.is_empty() {
        client.handle(Handle { selectors, capacity: Capacity { concurrency, payload_bytes_max } });
    }
    if let Some(device) = &args.device {
        let authorization = args.key.as_ref().map(|key| format!("Bearer {key}").into());
        client.attach(Attach { device: device.as_str().into(), authorization, info: None });
    }
    let (answers, answered) = channel();
    let mut running = 0;
    loop {
        while let Ok((ticket, answer)) = answered.try_recv() {
            running -= 1;
            client.respond(ticket, answer);
        }
        let patience = if running > 0 { LOOK_EVERY } else { NOTHING_RUNS };
        match client.next(Instant::now() + patience) {
            Some(Update::Asked { ticket, asked }) => {
                running += 1;
                start(&args.exec, ticket, asked, answers.clone());
            }
            Some(Update::HandlingEnded { refusal, .. }) => {
                return Err((Failure::Refused, refusal.to_string()));
            }
            Some(Update::Stopped(error)) => return Err(failure_of(&error)),
            Some(Update::Disconnected { why, pause }) => {
                eprintln!("{why}; next attempt in {} ms", pause.as_millis());
            }
            Some(_) | None => {}
        }
    }
}

fn start(command: &str, ticket: Ticket, asked: Asked, answers: Sender<(Ticket, Answer)>) {
    let command = command.to_owned();
    thread::spawn(move || {
        // Nobody takes it only if this program is about to end.
        let _ = answers.send((ticket, run(&command, &asked)));
    });
}

fn run(command: &str, asked: &Asked) -> Answer {
    let cannot = |error: std::io::Error| format!("cannot run the handler's command: {error}");
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("TIDEGATE_TOPIC", asked.topic.as_str())
        .env("TIDEGATE_PRINCIPAL", &*asked.principal)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (stdin, payload) = (child.stdin.take(), Arc::clone(&asked.payload));
    let writer = thread::spawn(move || {
        // A command may end without reading all of it.
        let _ = stdin.map(|mut stdin| stdin.write_all(payload.bytes()));
    });
    let output = child.wait_with_output().map_err(cannot)?;
    // It ends when the command's standard input does.
    let _ = writer.join();
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    if !output.status.success() {
        let said = said.trim();
        let why = if said.is_empty() { output.status.to_string() } else { said.to_owned() };
        return Err(why.into());
    }
    let bytes = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    Ok(Arc::new(Payload::new(kind_of(Said::Nothing, bytes), bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(data: &str) -> Asked {
        Asked {
            request: 1,
            topic: model::TopicName::parse("orders/new", &Limits::default()).expect("valid"),
            payload: Arc::new(Payload::new(model::PayloadKind::Json, data.as_bytes())),
            timeout: Duration::from_secs(1),
            session: "s".into(),
            principal: "alice".into(),
        }
    }

    #[test]
    fn a_command_reads_the_request_and_its_output_is_the_answer() {
        let answer = run("cat", &asked("{\"n\":1}")).expect("it ends well");
        assert_eq!((answer.kind(), answer.bytes()), (model::PayloadKind::Json, &b"{\"n\":1}"[..]));
        let answer = run("echo $TIDEGATE_TOPIC for $TIDEGATE_PRINCIPAL", &asked("1"));
        assert_eq!(answer.expect("it ends well").bytes(), b"orders/new for alice");
    }

    #[test]
    fn a_command_that_fails_declines_with_what_it_said() {
        assert_eq!(run("echo sold out >&2; exit 1", &asked("1")), Err("sold out".into()));
        assert_eq!(run("exit 3", &asked("1")), Err("exit status: 3".into()));
    }
}
