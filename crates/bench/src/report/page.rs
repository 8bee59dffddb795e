//! One self-contained page for one run.

use serde_json::Value;

use super::plot::{Line, Plot, svg};
use super::summary::{sentence, verdict as verdict_of};
use super::{PERCENTILES, figures, rounded, text, why_invalid};

/// The page: what was found in a sentence, latencies, plots with the reference drawn in, all figures, and the whole
/// JSON for programs.
pub fn html(report: &Value) -> String {
    let title = format!("{} against {}", text(&report["scenario"]), text(&report["target"]));
    let whole = serde_json::to_string_pretty(report).unwrap_or_default().replace("</", "<\\/");
    let plots: String = plots(report).iter().map(svg).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<main>\n<h1>{title}</h1>\n{head}\n{latencies}\n\
         <section>{plots}</section>\n<h2>All figures</h2>\n<table>{rows}</table>\n{TERMS}\n\
         <p class=\"small\">{machine}</p>\n\
         <details><summary>Everything, as JSON</summary><pre>{json}</pre></details>\n\
         <script type=\"application/json\" id=\"report\">{whole}</script>\n</main></html>\n",
        title = escaped(&title),
        head = head(report),
        latencies = latencies(report),
        rows = pairs(&figures(report)),
        machine = escaped(&report["machine"].to_string()),
        json = escaped(&whole),
    )
}

/// The findings, their validity, and the command that repeats the run.
fn head(report: &Value) -> String {
    let (class, verdict) = match report["result"]["is_valid"] == true {
        true => ("good", "valid".to_owned()),
        false => ("bad", why_invalid(report)),
    };
    let mut facts = vec![
        ("what".to_owned(), text(&report["what"])),
        ("clients".into(), text(&report["scaling"])),
    ];
    facts.extend(verdict_of(report).map(|text| ("floor".to_owned(), text)));
    let reference = &report["reference"];
    if reference.is_object() {
        let said = format!(
            "{}, {} clients: {}",
            text(&reference["by"]),
            reference["clients"],
            text(&reference["result"])
        );
        facts.push(("reference".into(), said));
    }
    for name in ["command", "date", "commit"] {
        facts.extend(report[name].as_str().map(|value| (name.to_owned(), value.to_owned())));
    }
    let (sentence, verdict) = (escaped(&sentence(report)), escaped(&verdict));
    format!(
        "<p class=\"lead\">{sentence} <strong class=\"{class}\">{verdict}</strong></p>\n<table>{}</table>",
        pairs(&facts)
    )
}

fn pairs(rows: &[(String, String)]) -> String {
    rows.iter()
        .map(|(name, value)| format!("<tr><th>{}<td>{}\n", escaped(name), escaped(value)))
        .collect()
}

/// The percentiles of each phase and of the reference, side by side, in ms.
fn latencies(report: &Value) -> String {
    let phases = report["result"]["phases"].as_array().into_iter().flatten();
    let rows: String = phases
        .filter(|phase| phase["latency_ms"]["count"].as_u64().unwrap_or(0) > 0)
        .map(|phase| {
            let cells = PERCENTILES.map(|name| {
                format!("<td>{}", rounded(phase["latency_ms"][name].as_f64().unwrap_or(0.0)))
            });
            format!("<tr><th>{}{}\n", escaped(&text(&phase["name"])), cells.concat())
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let names =
        PERCENTILES.map(|name| format!("<th>{}", if name == "p50" { "median" } else { name }));
    format!(
        "<h2>Latency in ms</h2>\n<table class=\"numbers\"><tr><th>phase{}\n{rows}</table>",
        names.concat()
    )
}

const STYLE: &str = ":root{--ground:#fff;--ink:#222;--line:#ddd;--soft:#666;--good:#2c7a3c;--bad:#be1e2d}\
@media (prefers-color-scheme:dark){:root{--ground:#16191d;--ink:#e4e6e8;--line:#3a4048;--soft:#9aa2ab;--good:#6cc580;--bad:#ff7b85}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);margin:0}\
main{max-width:1500px;margin:auto;padding:1rem}h1{font-size:1.4rem}h2{font-size:1.1rem;margin:1.5rem 0 .3rem}\
.lead{font-size:1.25rem}table{border-collapse:collapse}th{text-align:left;font-weight:500;padding:.15rem 1.5rem .15rem 0;\
vertical-align:top}td{font-variant-numeric:tabular-nums}tr{border-bottom:1px solid var(--line)}\
.numbers td,.numbers th:not(:first-child){text-align:right;padding:.15rem 0 .15rem 1.5rem}\
section{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}svg{max-width:100%;height:auto;\
border:1px solid var(--line);border-radius:4px}pre{overflow:auto;font-size:12px}.small{font-size:12px;\
color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}dt{font-weight:500}dd{margin:0 0 .4rem 1.5rem}";

const TERMS: &str = "<h2>Terms</h2>\n<dl>\
<dt>latency<dd>From when a message should have been sent to when a client has it: a server that stalls cannot hide it.\
<dt>median, p99<dd>Half of all messages came sooner than the median; 99 % sooner than p99.\
<dt>floor<dd>What bare <code>send</code> calls of as many bytes to as many sockets cost on this machine, before and after the run.\
<dt>server CPU per message<dd>User and kernel time of the server's process for each message that a client got.\
<dt>sends per message<dd>Below 1 where several messages share one system call.\
<dt>hiccup<dd>How much longer than 1 ms a sleep of 1 ms took: the noise of the machine, and of the server's own process.\
<dt>generator late<dd>How much too late the load was sent; above 20 ms (p99) the run does not count.\
<dt>gap<dd>A loss that the server announced to the client; missing is what it did not announce.</dl>";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn plots(report: &Value) -> Vec<Plot> {
    let result = &report["result"];
    let series = &result["series"];
    let over_time = |title: &str, y: &str, key: &str, scale: f64| Plot {
        title: title.into(),
        x: "seconds",
        y: y.into(),
        lines: vec![Line {
            name: y.into(),
            points: points(&series["seconds"], &series[key], scale),
        }],
        marks: Vec::new(),
        ticks: Vec::new(),
        is_logarithmic: false,
    };
    vec![
        latency(report),
        over_time("Throughput", "messages a second", "messages_per_second", 1.0),
        over_time("Connections", "subscribed clients", "connections", 1.0),
        over_time("Server CPU", "cores", "server_cores", 1.0),
        over_time("Server memory", "resident MB", "server_resident_bytes", 1e-6),
        hiccups(result),
    ]
}

/// Places on the axis of percentiles: each step is one more nine.
const NINES: [(f64, &str, &str); 6] = [
    (0.0, "min", "min"),
    (1.0, "p90", "90 %"),
    (2.0, "p99", "99 %"),
    (3.0, "p99.9", "99.9 %"),
    (4.0, "p99.99", "99.99 %"),
    (5.0, "max", "99.999 %"),
];

fn nines() -> Vec<(f64, &'static str)> {
    NINES.iter().map(|(at, _, name)| (*at, *name)).collect()
}

fn latency(report: &Value) -> Plot {
    let phases = report["result"]["phases"].as_array().cloned().unwrap_or_default();
    let lines = phases.iter().map(|phase| Line {
        name: text(&phase["name"]),
        points: curve(&phase["latency_curve_ms"]),
    });
    let reference = report["reference"]["latency_ms"].as_object();
    let marks = reference.into_iter().flatten();
    Plot {
        title: "Latency by percentile, all messages to all clients".into(),
        x: "of messages",
        y: "ms".into(),
        lines: lines.filter(|line| line.points.len() > 1).collect(),
        marks: marks.filter_map(|(name, ms)| Some((name.clone(), ms.as_f64()?))).collect(),
        ticks: nines(),
        is_logarithmic: true,
    }
}

/// Quantiles to numbers of nines.
fn curve(points: &Value) -> Vec<(f64, f64)> {
    let points = points.as_array().into_iter().flatten();
    points
        .filter_map(|point| {
            let quantile = point[0].as_f64()?;
            let nines = -(1.0 - quantile).max(1e-5).log10();
            Some((nines, point[1].as_f64()?))
        })
        .filter(|(_, y)| *y > 0.0)
        .collect()
}

fn hiccups(result: &Value) -> Plot {
    let lines = [
        ("server process", "server_process"),
        ("server cores", "server_cores"),
        ("load cores", "load_cores"),
    ]
    .into_iter()
    .map(|(name, key)| {
        let of = &result["hiccups_ms"][key];
        let points = NINES.iter().filter_map(|(at, percentile, _)| {
            Some((*at, of[*percentile].as_f64()?)).filter(|(_, ms)| *ms > 0.0)
        });
        Line { name: name.into(), points: points.collect() }
    })
    .filter(|line| line.points.len() > 1);
    Plot {
        title: "Hiccups: how much a sleep of 1 ms was too long".into(),
        x: "of naps",
        y: "ms".into(),
        lines: lines.collect(),
        marks: Vec::new(),
        ticks: nines(),
        is_logarithmic: true,
    }
}

fn points(x: &Value, y: &Value, scale: f64) -> Vec<(f64, f64)> {
    let (x, y) = (x.as_array().into_iter().flatten(), y.as_array().into_iter().flatten());
    x.zip(y).filter_map(|(x, y)| Some((x.as_f64()?, y.as_f64()? * scale))).collect()
}
