//! Two ways to write metrics down: OpenMetrics, and Prometheus' older text format 0.0.4 for who does not ask for it.

use http::{HeaderMap, header};

pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether who asks reads OpenMetrics, as Prometheus does.
pub(crate) fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter();
    accepts
        .filter_map(|line| line.to_str().ok())
        .any(|line| line.contains("application/openmetrics-text"))
}

/// The older format of an OpenMetrics text: there a counter's whole name stands before its lines, and nothing stands at
/// the end.
pub(crate) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 16);
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let is_of_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
        let head = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let is_counter = is_of_counter(line)
            || head.is_some() && lines.peek().is_some_and(|it| is_of_counter(it));
        match head.and_then(|head| head.split_once(' ')) {
            Some((name, rest)) if is_counter => {
                let word = &line[..7];
                text.push_str(&format!("{word}{name}_total {rest}\n"));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_announced_under_its_whole_name() {
        let open = "# HELP a_sends Sends.\n# TYPE a_sends counter\na_sends_total{s=\"0\"} 1\n\
                    # HELP a_now Now.\n# TYPE a_now gauge\na_now 2\n# EOF\n";
        let text = "# HELP a_sends_total Sends.\n# TYPE a_sends_total counter\na_sends_total{s=\"0\"} 1\n\
                    # HELP a_now Now.\n# TYPE a_now gauge\na_now 2\n";
        assert_eq!(classic(open), text);
    }
}
