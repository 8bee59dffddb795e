//! `tidegate top`: a server at work, on one screen.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::args::TopArgs;
use crate::http::Api;
use crate::slow::lines_of;
use crate::status::sums_of;
use crate::{Failure, Outcome, print_line};

/// The current figures, by the names of the server's metrics.
const NOW: [(&str, &str); 9] = [
    ("connections", "tidegate_connections"),
    ("sessions", "tidegate_sessions"),
    ("devices", "tidegate_devices"),
    ("subscriptions", "tidegate_subscriptions"),
    ("topics", "tidegate_topics"),
    ("behind", "tidegate_stalled_sessions"),
    ("history bytes", "tidegate_history_bytes"),
    ("memory bytes", "tidegate_memory_allocated_bytes"),
    ("memory pressure", "tidegate_memory_pressure"),
];

/// The rates, per second.
const RATES: [(&str, &str); 9] = [
    ("publications", "tidegate_publications_total"),
    ("delivered", "tidegate_delivered_total"),
    ("bytes out", "tidegate_sent_bytes_total"),
    ("bytes in", "tidegate_received_bytes_total"),
    ("commands", "tidegate_commands_total"),
    ("HTTP requests", "tidegate_http_requests_total"),
    ("connections made", "tidegate_connections_accepted_total"),
    ("refused", "tidegate_refusals_total"),
    ("gaps told", "tidegate_gaps_total"),
];

/// How long the first rates are taken over: nobody looks at nothing for long.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Sessions that are shown.
const SLOW_COUNT: usize = 10;
/// Columns of a screen whose size is not known.
const USUAL_COLUMNS: usize = 120;

type Numbers = BTreeMap<String, u64>;

/// The figures of one moment.
struct Sample {
    at: Instant,
    numbers: Numbers,
}

pub(crate) fn top(args: &TopArgs) -> Outcome {
    let api = Api::new(&args.remote);
    let interval = Duration::from_millis(args.interval_ms);
    let mut before = look(&api)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut pause = interval.min(FIRST_LOOK);
    while left > 0 {
        std::thread::sleep(pause.saturating_sub(before.at.elapsed()));
        pause = interval;
        match look(&api) {
            Ok(now) => {
                show(args, &api, &before, &now);
                before = now;
                left -= 1;
            }
            // It may come back; a refusal does not go by itself.
            Err((Failure::NoConnection, text)) => {
                draw(&[format!("{}: {text}", clock()), "trying again".into()]);
                before.at = Instant::now();
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(())
}

fn look(api: &Api) -> Result<Sample, (Failure, String)> {
    Ok(Sample { at: Instant::now(), numbers: sums_of(&api.text("/metrics")?) })
}

fn number(numbers: &Numbers, metric: &str) -> u64 {
    numbers.get(metric).copied().unwrap_or(0)
}

/// How much more there is per second than before. A server that was started again counts from 0.
fn rate(before: &Sample, now: &Sample, metric: &str) -> f64 {
    let (earlier, later) = (number(&before.numbers, metric), number(&now.numbers, metric));
    let more = if later >= earlier { later - earlier } else { later };
    more as f64 / (now.at - before.at).as_secs_f64().max(0.001)
}

fn show(args: &TopArgs, api: &Api, before: &Sample, now: &Sample) {
    let slow = api.json(&format!("/v1/slow?limit={SLOW_COUNT}"));
    if args.output.json {
        let rates: BTreeMap<&str, f64> =
            RATES.iter().map(|(_, metric)| (*metric, rate(before, now, metric))).collect();
        let slow = slow.map_or(Value::Null, |answer| answer["slow"].clone());
        print_line(&json!({ "now": now.numbers, "per_second": rates, "slow": slow }).to_string());
        return;
    }
    let server = &args.remote.server;
    let mut lines = vec![format!("{server}   {}   Ctrl-C ends", clock()), String::new()];
    lines.push(format!("{:<16} {:>14}      {:<18} {:>12}", "NOW", "", "PER SECOND", ""));
    for ((name, metric), (rate_name, rate_metric)) in NOW.iter().zip(&RATES) {
        let (count, rate) = (number(&now.numbers, metric), rate(before, now, rate_metric));
        lines.push(format!("{name:<16} {count:>14}      {rate_name:<18} {rate:>12.1}"));
    }
    lines.push(String::new());
    match slow.as_ref().map(|answer| answer["slow"].as_array().map_or(&[][..], Vec::as_slice)) {
        Ok([]) => lines.push("nobody is behind".into()),
        Ok(slow) => lines.extend(lines_of(slow)),
        Err((_, text)) => lines.push(format!("who is behind is not shown: {text}")),
    }
    draw(&lines);
}

fn clock() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Draws a screen over the one before; where there is no terminal, below it.
fn draw(lines: &[String]) {
    let mut screen = String::new();
    if std::io::stdout().is_terminal() {
        let size = console::Term::stdout().size_checked();
        let (rows, columns) = size.map_or((usize::MAX, USUAL_COLUMNS), |(rows, columns)| {
            (usize::from(rows).saturating_sub(1), usize::from(columns))
        });
        screen.push_str("\x1b[H");
        for line in lines.iter().take(rows) {
            let shown: String = line.chars().take(columns).collect();
            screen.push_str(&format!("{shown}\x1b[K\n"));
        }
        screen.push_str("\x1b[J");
        print!("{screen}");
        // Whoever closed the terminal ends the program.
        let _ = std::io::stdout().flush();
        return;
    }
    lines.iter().for_each(|line| print_line(line));
    print_line("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_and_begin_anew_with_the_server() {
        let at = Instant::now();
        let sample = |seconds, count| Sample {
            at: at + Duration::from_secs(seconds),
            numbers: Numbers::from([("a".to_owned(), count)]),
        };
        assert_eq!(rate(&sample(0, 100), &sample(2, 300), "a"), 100.0);
        assert_eq!(rate(&sample(0, 100), &sample(2, 10), "a"), 5.0);
        assert_eq!(rate(&sample(0, 100), &sample(2, 300), "b"), 0.0);
    }
}
