//! `tidegate handle`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use client::{Ticket, Update};
use model::{Asked, Attach, Capacity, Handle, Payload, Selector};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::args::HandleArgs;
use crate::payload::{PayloadHint, kind_of};
use crate::publish::{connect, failure_of};
use crate::usage::selector_of;
use crate::{Failure, Outcome};

/// How soon an answer is noticed while commands run.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const NOTHING_RUNS: Duration = Duration::from_secs(3600);

/// The output of a command, or the reason of its failure.
type Answer = Result<Arc<Payload>, Box<str>>;

/// Runs a command for each request; ends when the server refuses.
pub(crate) fn handle(args: &HandleArgs) -> Outcome {
    let selectors = args.selectors.iter().map(|text| selector_of(text));
    let selectors: Vec<Selector> = selectors.collect::<Result<_, _>>()?;
    let mut client = connect(&args.remote)?;
    let (concurrency, payload_bytes_max) = (args.concurrency, args.payload_bytes_max);
    if !selectors.is_empty() {
        client.handle(Handle { selectors, capacity: Capacity { concurrency, payload_bytes_max } });
    }
    if let Some(device) = &args.device {
        let authorization = args.key.as_ref().map(|key| format!("Bearer {key}").into());
        client.attach(Attach { device: device.as_str().into(), authorization, info: None });
    }
    let (answers, answered) = channel();
    let (stopped, mut running) = (Running::default(), 0);
    let groups = Arc::clone(&stopped);
    let stop = move || {
        set_of(&groups).iter().for_each(|group| kill(*group));
        std::process::exit(Failure::Other as i32);
    };
    engine::on_shutdown_signal(stop)
        .map_err(|error| (Failure::Other, format!("cannot await signals: {error}")))?;
    loop {
        while let Ok((ticket, answer)) = answered.try_recv() {
            running -= 1;
            client.respond(ticket, answer);
        }
        let patience = if running > 0 { LOOK_EVERY } else { NOTHING_RUNS };
        match client.next(Instant::now() + patience) {
            Some(Update::Asked { ticket, asked }) => {
                running += 1;
                let output_bytes_max = client.payload_bytes_max();
                let bounds = Bounds { output_bytes_max, running: Arc::clone(&stopped) };
                start(&args.exec, ticket, asked, &bounds, answers.clone());
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

/// The process groups of commands that run, to be killed when this program is stopped.
type Running = Arc<Mutex<BTreeSet<u32>>>;

/// The limits of a command.
#[derive(Clone, Debug)]
struct Bounds {
    output_bytes_max: usize,
    running: Running,
}

fn start(
    command: &str,
    ticket: Ticket,
    asked: Asked,
    bounds: &Bounds,
    answers: Sender<(Ticket, Answer)>,
) {
    let (command, bounds) = (command.to_owned(), bounds.clone());
    thread::spawn(move || {
        // Nobody takes it only if this program is about to end.
        let _ = answers.send((ticket, run(&command, &asked, &bounds)));
    });
}

fn run(command: &str, asked: &Asked, bounds: &Bounds) -> Answer {
    let cannot = |error: std::io::Error| format!("cannot run the handler's command: {error}");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .env("TIDEGATE_TOPIC", asked.topic.as_str())
        .env("TIDEGATE_PRINCIPAL", &*asked.principal)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    engine::end_with_starter(&mut shell);
    let mut child = shell.spawn().map_err(cannot)?;
    let group = child.id();
    set_of(&bounds.running).insert(group);
    let answer = await_answer(&mut child, asked, bounds.output_bytes_max);
    set_of(&bounds.running).remove(&group);
    if answer.is_err() {
        kill(group);
    }
    // It has ended, or was just killed.
    let _ = child.wait();
    answer
}

fn set_of(running: &Running) -> MutexGuard<'_, BTreeSet<u32>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(group: u32) {
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    // It may have ended by itself.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
}

/// Hands the request to a command, and takes what it says until it ends, or its time is over.
fn await_answer(child: &mut Child, asked: &Asked, output_bytes_max: usize) -> Answer {
    const SAID_BYTES_MAX: usize = 64 << 10;
    let until = Instant::now() + asked.timeout;
    if let Some(mut stdin) = child.stdin.take() {
        let payload = Arc::clone(&asked.payload);
        // A command may end without reading all of it.
        thread::spawn(move || drop(stdin.write_all(payload.bytes())));
    }
    let output = read_up_to(child.stdout.take(), output_bytes_max + 1);
    let said = read_up_to(child.stderr.take(), SAID_BYTES_MAX);
    let late = || {
        let ms = asked.timeout.as_millis();
        format!("the command did not end within the {ms} ms of the request, and was ended")
    };
    let left = || until.saturating_duration_since(Instant::now());
    let output = output.recv_timeout(left()).map_err(|_| late())?;
    let bytes = output.strip_suffix(b"\n").unwrap_or(&output);
    if bytes.len() > output_bytes_max {
        return Err(format!("the command said more than {output_bytes_max} bytes").into());
    }
    let said = said.recv_timeout(left()).map_err(|_| late())?;
    let said = String::from_utf8_lossy(&said);
    eprint!("{said}");
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if left().is_zero() => return Err(late().into()),
            Ok(None) => thread::sleep(LOOK_EVERY),
            Err(error) => return Err(format!("cannot wait for the command: {error}").into()),
        }
    };
    if !status.success() {
        let said = said.trim();
        let why = if said.is_empty() { status.to_string() } else { said.to_owned() };
        return Err(why.into());
    }
    Ok(Arc::new(Payload::new(kind_of(PayloadHint::None, bytes), bytes)))
}

/// Reads what comes until it ends, or until so many bytes are there; then nobody listens any more.
fn read_up_to(from: Option<impl Read + Send + 'static>, bytes_max: usize) -> Receiver<Vec<u8>> {
    let (read, result) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // What was read before an error is what there is.
            let _ = from.take(bytes_max as u64).read_to_end(&mut bytes);
        }
        let _ = read.send(bytes);
    });
    result
}

#[cfg(test)]
mod tests {
    use model::Limits;

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

    fn run(command: &str, asked: &Asked) -> Answer {
        let bounds = Bounds { output_bytes_max: 1_000, running: Running::default() };
        let answer = super::run(command, asked, &bounds);
        assert!(set_of(&bounds.running).is_empty());
        answer
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

    #[test]
    fn a_command_that_says_too_much_or_takes_too_long_is_ended_with_all_that_it_started() {
        let said = run("yes", &asked("1")).expect_err("it never ends");
        assert_eq!(&*said, "the command said more than 1000 bytes");
        let said = run("head -c 1000 /dev/zero", &asked("1")).expect("as much as may be");
        assert_eq!(said.bytes().len(), 1_000);
        let late = Asked { timeout: Duration::from_millis(50), ..asked("1") };
        let said = run("sleep 3600 & sleep 3600", &late).expect_err("it takes too long");
        assert!(said.contains("within the 50 ms"), "{said}");
        let said = run("exec 1>&- 2>&-; sleep 3600", &late).expect_err("it takes too long");
        assert!(said.contains("within the 50 ms"), "{said}");
    }
}
