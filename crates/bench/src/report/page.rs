//! One self-contained page for one run.

use serde_json::Value;

use super::plot::{Line, Plot, svg};
use super::{figures, text};

/// The page: figures, plots with the reference drawn in, and the whole JSON for programs.
pub fn html(report: &Value) -> String {
    let title = format!("{} against {}", text(&report["scenario"]), text(&report["target"]));
    let rows: String = figures(report)
        .into_iter()
        .map(|(name, value)| format!("<tr><th>{}<td>{}\n", escaped(&name), escaped(&value)))
        .collect();
    let plots: String = plots(report).iter().map(svg).collect();
    let is_valid = report["result"]["is_valid"] == true;
    let verdict = if is_valid { "valid" } else { "NOT VALID: see the checks" };
    let reference = match report["reference"].is_object() {
        true => format!(
            "<p>Reference: {}, {} clients: {}</p>",
            escaped(&text(&report["reference"]["by"])),
            report["reference"]["clients"],
            escaped(&text(&report["reference"]["result"]))
        ),
        false => String::new(),
    };
    let machine = escaped(&report["machine"].to_string());
    let whole = serde_json::to_string_pretty(report).unwrap_or_default().replace("</", "<\\/");
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<main>\n<h1>{title}</h1>\n\
         <p>{what}. <strong class=\"{class}\">{verdict}</strong></p>\n<p>{scaling}</p>\n{reference}\n\
         <table>{rows}</table>\n<section>{plots}</section>\n<p class=\"small\">{machine}</p>\n\
         <details><summary>Everything, as JSON</summary><pre>{json}</pre></details>\n\
         <script type=\"application/json\" id=\"report\">{whole}</script>\n</main></html>\n",
        title = escaped(&title),
        what = escaped(&text(&report["what"])),
        class = if is_valid { "good" } else { "bad" },
        scaling = escaped(&text(&report["scaling"])),
        json = escaped(&whole),
    )
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#222;margin:0}\
main{max-width:1500px;margin:auto;padding:1rem}h1{font-size:1.4rem}\
table{border-collapse:collapse}th{text-align:left;font-weight:500;padding:.15rem 1.5rem .15rem 0;\
vertical-align:top}td{font-variant-numeric:tabular-nums}tr{border-bottom:1px solid #eee}\
section{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}svg{max-width:100%;height:auto;\
border:1px solid #ddd;border-radius:4px}pre{overflow:auto;font-size:12px}.small{font-size:12px;\
color:#666}.good{color:#2c7a3c}.bad{color:#be1e2d}";

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
