//! Origins of web pages: which may use the server, and what the operator is told of those that may not.

use std::net::IpAddr;

use crate::refusals::Plain;

/// In `access.origins`: pages of any origin.
const ANY: &str = "*";
/// In `access.origins`: pages that come from the visitor's own machine, as those of development servers do.
const LOOPBACK: &str = "loopback";
/// Origins that are told together with a new one.
const LISTED_MAX: usize = 8;

/// Checks what `access.origins` lists: an origin as browsers write it, `*`, or `loopback`.
///
/// # Errors
/// It is something else; the text says what to write.
pub fn check_origin(text: &str) -> Result<(), String> {
    if text == ANY || text == LOOPBACK || text == "null" {
        return Ok(());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let likely = if text.is_empty() { "localhost:5173" } else { text };
        return Err(format!("is no origin: it has no scheme; write such as \"http://{likely}\""));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let usual_port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let written = authority.strip_suffix(usual_port).unwrap_or(authority);
    let written = format!("{scheme}://{written}").to_lowercase();
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"\\`*@<>".contains(c);
    if authority.is_empty() || !written.chars().all(is_plain) {
        return Err("is no origin; write such as \"https://app.example.com\", \"*\" for pages of any, or \"loopback\""
            .to_owned());
    }
    if written != text {
        return Err(format!("is never what a browser says; write \"{written}\""));
    }
    Ok(())
}

/// Whether a list of origins has one in it.
pub(crate) fn lists(origins: &[String], origin: &str) -> bool {
    origins.iter().any(|listed| {
        listed == origin || listed == ANY || listed == LOOPBACK && is_of_loopback(origin)
    })
}

fn is_of_loopback(origin: &str) -> bool {
    let host = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    let Some(host) = host else { return false };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    let is_loopback = address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

/// What the operator is told of an origin that is refused.
pub fn origin_advice(origin: &str, listed: &[String]) -> String {
    let shown = Plain(origin);
    if origin == "null" {
        return "refused a page that has no origin of its own (`null`: it was opened as a file, or stands in a \
                sandboxed frame): serve it over http, and let that origin in"
            .to_owned();
    }
    if check_origin(origin).is_err() || origin == ANY || origin == LOOPBACK {
        return format!("refused a request whose Origin is `{shown}`, which no browser says");
    }
    let all: Vec<String> =
        listed.iter().map(String::as_str).chain([origin]).map(|one| format!("\"{one}\"")).collect();
    let line = match all.len() {
        0..=LISTED_MAX => format!("origins = [{}]", all.join(", ")),
        _ => format!("origins = […, \"{origin}\"]"),
    };
    format!(
        "refused pages of `{shown}`: to let them in put {line} under [access] in the configuration, or start the \
         server with --origin {shown}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_browser_says_is_told_with_what_it_says() {
        for text in
            ["*", "loopback", "null", "http://localhost:5173", "https://a.example", "app://x"]
        {
            assert_eq!(check_origin(text), Ok(()), "{text}");
        }
        for (text, cure) in [
            ("localhost:5173", "write such as \"http://localhost:5173\""),
            ("", "write such as \"http://localhost:5173\""),
            ("http://localhost:5173/", "write \"http://localhost:5173\""),
            ("https://A.example/app?x", "write \"https://a.example\""),
            ("https://a.example:443", "write \"https://a.example\""),
            ("http://a.example:80", "write \"http://a.example\""),
            ("http://", "write such as"),
            ("https://*.example", "write such as"),
        ] {
            let error = check_origin(text).expect_err(text);
            assert!(error.ends_with(cure) || error.contains(cure), "{text}: {error}");
        }
    }

    #[test]
    fn loopback_is_this_machine_by_any_name_and_nobody_else() {
        let loopback = [LOOPBACK.to_owned()];
        for (origin, is_listed) in [
            ("http://localhost:5173", true),
            ("https://localhost", true),
            ("http://app.localhost:3000", true),
            ("http://127.0.0.1:8080", true),
            ("http://127.1.2.3", true),
            ("http://[::1]:5173", true),
            ("http://[::1]", true),
            ("http://localhost.evil.example", false),
            ("http://evil.example:5173", false),
            ("http://notlocalhost", false),
            ("http://127.0.0.1.evil.example", false),
            ("http://10.0.0.1", false),
            ("null", false),
            ("loopback", true),
            ("file://localhost", false),
        ] {
            // The word itself is no origin that a browser says.
            assert_eq!(lists(&loopback, origin), is_listed, "{origin}");
        }
    }

    #[test]
    fn the_operator_is_told_the_whole_line() {
        let listed = ["https://a.example".to_owned()];
        let told = origin_advice("http://localhost:5173", &listed);
        assert!(
            told.contains(
                "put origins = [\"https://a.example\", \"http://localhost:5173\"] under [access]"
            ),
            "{told}"
        );
        assert!(told.ends_with("--origin http://localhost:5173"), "{told}");
        assert!(origin_advice("null", &[]).contains("serve it over http"));
        for odd in ["http://a\" , \"*", "http://a/b", "*", "loopback", "x\u{1b}"] {
            let told = origin_advice(odd, &[]);
            assert!(told.ends_with("which no browser says") && !told.contains('\u{1b}'), "{told}");
        }
        let many: Vec<String> = (0..20).map(|n| format!("http://{n}.example")).collect();
        assert!(
            origin_advice("http://x.example", &many)
                .contains("origins = […, \"http://x.example\"]")
        );
    }
}
