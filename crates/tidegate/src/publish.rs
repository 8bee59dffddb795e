//! `tidegate pub`.

use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

use client::{Client, ClientError, ClientOptions, ErrorCode, Token, Update};
use indicatif::{ProgressBar, ProgressStyle};
use model::{
    Advice, Draft, HeaderOrigin, HeaderValue, Headers, Payload, Rates, TopicName, is_number,
};
use serde_json::json;

use crate::args::{Output, PubArgs, Remote};
use crate::payload::{PayloadHint, check_hint, kind_of};
use crate::usage::{topic_of, wrong};
use crate::{Failure, Outcome, print_line};

/// Publications on their way without an answer, at most.
const WINDOW: usize = 256;
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(crate) fn connect(remote: &Remote) -> Result<Client, (Failure, String)> {
    connect_with(remote, Rates::default())
}

/// Connects as a client that wants to be sent at most so much.
pub(crate) fn connect_with(remote: &Remote, rates: Rates) -> Result<Client, (Failure, String)> {
    let options = ClientOptions {
        rates,
        token: remote.token.clone().map(Token::from),
        ca: remote.ca.clone(),
        name: Some("tidegate-cli".into()),
        other_urls: Vec::new(),
        seed: None,
        publish_timeout: ANSWER_MAX,
    };
    Client::connect(&remote.server, options).map_err(|error| failure_of(&error))
}

/// The exit code of an error.
pub(crate) fn failure_of(error: &ClientError) -> (Failure, String) {
    let is_refused = match error.code {
        ErrorCode::Server(code) => {
            matches!(code.advice(), Advice::ChangeFirst | Advice::AuthenticateFirst)
        }
        _ => false,
    };
    (if is_refused { Failure::Refused } else { Failure::NoConnection }, error.to_string())
}

pub(crate) fn publish(args: &PubArgs) -> Outcome {
    let topic = topic_of(&args.topic)?;
    if args.data != "-" {
        check_hint(hint(args), &args.data, "publish")?;
    }
    let headers = headers_of(&args.headers)?;
    let (mut client, output) = (connect(&args.remote)?, args.output);
    let draft = |bytes: &[u8], key: Option<&str>| Draft {
        topic: topic.clone(),
        payload: Payload::with_headers(kind_of(hint(args), bytes), &headers, bytes),
        idempotency_key: key.map(Into::into),
        expected: None,
    };
    if args.data != "-" {
        client.publish(draft(args.data.as_bytes(), args.key.as_deref()));
        return await_answers(&mut client, output, 0).map(|_| ());
    }
    let progress = progress_to(&topic);
    let (mut input, mut number) = (std::io::stdin().lock(), 0_u64);
    while let Some(line) = next_line(&mut input, client.payload_bytes_max())? {
        number += 1;
        let key = args.key.as_ref().map(|key| format!("{key}-{number}"));
        client.publish(draft(&line, key.as_deref()));
        progress.inc(await_answers(&mut client, output, WINDOW)?);
    }
    progress.inc(await_answers(&mut client, output, 0)?);
    progress.finish_and_clear();
    if !output.json {
        eprintln!("{} published to {topic}", progress.position());
    }
    Ok(())
}

/// The headers that `NAME=VALUE` spell out.
fn headers_of(given: &[String]) -> Result<Headers<'static>, (Failure, String)> {
    let mut headers = Headers::default();
    for text in given {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            wrong(format!("cannot use `{text}` as a header: it has no `=`; write NAME=VALUE"))
        })?;
        let value = match value {
            "true" => HeaderValue::Boolean(true),
            "false" => HeaderValue::Boolean(false),
            number if is_number(number) => HeaderValue::Number(number),
            text => HeaderValue::Text(text),
        };
        let pushed = headers.push(name, value, HeaderOrigin::Client);
        pushed.map_err(|error| wrong(error.to_string()))?;
    }
    Ok(headers)
}

/// The next line, unless it has more bytes than any payload may.
fn next_line(
    input: &mut impl BufRead,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, (Failure, String)> {
    let mut line = Vec::new();
    // One more for the end of the line.
    let count = input.take(bytes_max as u64 + 1).read_until(b'\n', &mut line).map_err(|error| {
        (Failure::Other, format!("cannot read standard input: {error}; check the pipe"))
    })?;
    line.pop_if(|last| *last == b'\n');
    if line.len() > bytes_max {
        let text = format!(
            "cannot publish a line of standard input: it has more than {bytes_max} bytes, which is as much as a \
             payload may have; break it up"
        );
        return Err((Failure::Refused, text));
    }
    Ok((count > 0).then_some(line))
}

/// Shows on a terminal how many lines were published, and how fast.
fn progress_to(topic: &TopicName) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {human_pos} published to {msg}, {per_sec}");
    let style = style.expect("a valid template");
    let progress = ProgressBar::new_spinner().with_style(style).with_message(topic.to_string());
    progress.enable_steady_tick(Duration::from_millis(200));
    progress
}

fn hint(args: &PubArgs) -> PayloadHint {
    match (args.bytes, args.text) {
        (true, _) => PayloadHint::Bytes,
        (_, true) => PayloadHint::Text,
        _ => PayloadHint::None,
    }
}

/// Takes answers until at most `left` are awaited; answers how many publications were kept.
fn await_answers(
    client: &mut Client,
    output: Output,
    left: usize,
) -> Result<u64, (Failure, String)> {
    let mut count = 0;
    loop {
        let is_waiting = client.unanswered() > left;
        let until = if is_waiting { Instant::now() + ANSWER_MAX } else { Instant::now() };
        match client.next(until) {
            Some(Update::Published { position, .. }) => {
                count += 1;
                if output.json {
                    let (epoch, sequence) = (position.epoch.as_str(), position.sequence.get());
                    print_line(&json!({ "epoch": epoch, "sequence": sequence }).to_string());
                }
            }
            Some(Update::Refused { refusal, .. }) => {
                let is_answer = matches!(refusal.code, ErrorCode::Server(_));
                let failure = if is_answer { Failure::Refused } else { Failure::NoConnection };
                return Err((failure, refusal.to_string()));
            }
            Some(Update::Disconnected { why, .. }) => return Err((Failure::NoConnection, why)),
            Some(Update::Stopped(error)) => return Err(failure_of(&error)),
            Some(_) => {}
            None if is_waiting => {
                let text = "the server did not answer in time; see its log".to_owned();
                return Err((Failure::Other, text));
            }
            None => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_values() {
        let given = ["unit=EUR", "n=1.50", "t=true", "e=", "a=b=c"].map(str::to_owned);
        let headers = headers_of(&given).map_err(|(_, text)| text).expect("valid");
        assert_eq!(headers.get("n"), Some(HeaderValue::Number("1.50")));
        assert_eq!(headers.get("t"), Some(HeaderValue::Boolean(true)));
        assert_eq!(headers.get("e"), Some(HeaderValue::Text("")));
        assert_eq!(headers.get("a"), Some(HeaderValue::Text("b=c")));
        for text in ["unit", "a b=1", "$source=x", "=x"] {
            let refused = headers_of(&[text.to_owned()]).expect_err(text);
            assert_eq!(refused.0, Failure::Usage, "{}", refused.1);
        }
    }

    #[test]
    fn a_line_is_read_up_to_what_a_payload_may_have() {
        let mut input = &b"12345\n\n1234"[..];
        let mut next = || next_line(&mut input, 5).map_err(|(failure, _)| failure);
        assert_eq!(next(), Ok(Some(b"12345".to_vec())));
        assert_eq!(next(), Ok(Some(Vec::new())));
        assert_eq!(next(), Ok(Some(b"1234".to_vec())));
        assert_eq!(next(), Ok(None));
        let mut endless = std::io::BufReader::with_capacity(16, std::io::repeat(b'x'));
        let refused = next_line(&mut endless, 1 << 20).expect_err("it has no end");
        assert_eq!(refused.0, Failure::Refused);
    }
}
