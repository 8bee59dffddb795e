//! Which paths this server has, and what takes a request to each.

use engine::Io;
use hub::ConnectionId;
use model::{Code, Refusal};
use protocol::http::RequestHead;

use crate::reply::Asker;
use crate::shard::Shard;
use crate::surfaces::{Surface, Surfaces};

/// What takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// A session over WebSocket.
    WebSocket,
    /// A WebSocket that echoes.
    Echo,
    /// A device attaches: a POST whose body stays open.
    Attach,
    /// A WebSocket for the device of this name.
    DeviceSocket(&'a str),
    /// A session over plain HTTP, or commands for one.
    Session(SessionRoute),
    /// A request to whoever handles it.
    Request,
    /// Devices, and what is about one.
    Devices,
    /// What is about one application.
    Applications,
    /// The ordinary HTTP stack.
    Ordinary,
}

/// How a request is about a session over plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRoute {
    /// Server-Sent Events.
    Events,
    /// Lines of JSON.
    Lines,
    /// One batch of lines for each request.
    Poll,
    /// Commands for a session.
    Commands,
}

impl<'a> Route<'a> {
    /// The route of a path; paths that are only WebSockets are such for those who ask for one.
    pub(crate) fn of(path: &'a str, wants_websocket: bool) -> Self {
        match path {
            "/v1/ws" => Self::WebSocket,
            "/diagnostics/echo" if wants_websocket => Self::Echo,
            "/v1/sse" => Self::Session(SessionRoute::Events),
            "/v1/stream" => Self::Session(SessionRoute::Lines),
            "/v1/poll" => Self::Session(SessionRoute::Poll),
            "/v1/commands" => Self::Session(SessionRoute::Commands),
            "/v1/request" => Self::Request,
            "/v1/devices" => Self::Devices,
            "/v1/devices/attach" => Self::Attach,
            path if path.starts_with("/v1/applications/") => Self::Applications,
            path => match path.strip_prefix("/v1/devices/").map(|rest| rest.strip_suffix("/ws")) {
                None => Self::Ordinary,
                Some(Some(device)) if wants_websocket && !device.contains('/') => {
                    Self::DeviceSocket(device)
                }
                Some(_) => Self::Devices,
            },
        }
    }
}

/// What the shards serve themselves.
const PATHS: &[(&str, &str)] = &[
    ("WebSocket", "/v1/ws"),
    ("WebSocket", "/diagnostics/echo"),
    ("WebSocket", "/v1/devices/{device}/ws"),
    ("GET", "/v1/sse"),
    ("POST", "/v1/sse"),
    ("GET", "/v1/stream"),
    ("POST", "/v1/stream"),
    ("GET", "/v1/poll"),
    ("POST", "/v1/poll"),
    ("POST", "/v1/commands"),
    ("POST", "/v1/request"),
    ("GET", "/v1/devices"),
    ("POST", "/v1/devices/attach"),
    ("GET", "/v1/devices/challenge"),
    ("GET", "/v1/devices/{device}"),
    ("POST", "/v1/devices/{device}/key"),
    ("POST", "/v1/devices/{device}/send"),
    ("GET", "/v1/applications/{application}/stats"),
];

/// Every method and path that the server knows, `WebSocket` being a method of its own; a part in braces is a name.
pub fn paths() -> Vec<(String, &'static str)> {
    let own = PATHS.iter().map(|(method, path)| ((*method).to_owned(), *path));
    own.chain(admin::PATHS.iter().map(|(method, path)| (method.to_uppercase(), *path))).collect()
}

/// Whether a path is one of a pattern's. A name is one level, and never one that another pattern spells out.
fn matches(pattern: &str, path: &str) -> bool {
    let (patterns, levels) = (pattern.split('/'), path.split('/'));
    let is_like = |(pattern, level): (&str, &str)| {
        pattern.starts_with('{') && !level.is_empty() || pattern == level
    };
    patterns.clone().count() == levels.clone().count() && patterns.zip(levels).all(is_like)
}

/// The methods that a path takes which the shards serve; a WebSocket begins with a GET.
fn methods_of(path: &str) -> Vec<&'static str> {
    let is_spelt_out = PATHS.iter().any(|(_, pattern)| *pattern == path);
    let known = PATHS.iter().filter(|(_, pattern)| match is_spelt_out {
        true => *pattern == path,
        false => matches(pattern, path),
    });
    known.map(|(method, _)| if *method == "WebSocket" { "GET" } else { method }).collect()
}

/// The surfaces that a path belongs to, one of which a listener must have.
pub(crate) fn surfaces_of(path: &str, method: &str) -> Surfaces {
    use Surface::{Clients, Devices, Operators, Publish};
    match Route::of(path, true) {
        Route::WebSocket | Route::Echo | Route::Session(_) => Surfaces::of(&[Clients]),
        Route::Request => Surfaces::of(&[Clients, Publish]),
        Route::Attach | Route::DeviceSocket(_) | Route::Devices | Route::Applications => {
            Surfaces::of(&[Devices])
        }
        Route::Ordinary => match path {
            // Whoever balances load asks at the listener that it balances.
            "/health" | "/ready" => Surfaces::ALL,
            "/v1/publish" => Surfaces::of(&[Publish]),
            path if path == "/v1/topics" || path.starts_with("/v1/topics/") => match method {
                "GET" | "HEAD" | "OPTIONS" => Surfaces::of(&[Clients, Publish]),
                _ => Surfaces::of(&[Publish]),
            },
            path if path.starts_with("/v1/history/") => Surfaces::of(&[Clients, Publish]),
            // The page, metrics and diagnostics, and what is not known here: the narrowest.
            _ => Surfaces::of(&[Operators]),
        },
    }
}

/// There is nothing under a path, or nothing for those who come this way.
pub(crate) fn nothing_at(path: &str) -> Refusal {
    let text =
        format!("cannot find `{path}`: there is nothing under that path; see docs/protocol.md");
    Refusal::new(Code::NotFound, text)
}

impl<I: Io> Shard<I> {
    /// Takes a whole request that the shards answer among themselves; answers false if it is not such a one.
    pub(crate) fn take_request(
        &mut self,
        link: ConnectionId,
        head: &RequestHead,
        body: &[u8],
    ) -> bool {
        let route = Route::of(head.path(), false);
        // Whether a page may ask is answered for all paths at once.
        if route == Route::Ordinary || head.method == "OPTIONS" {
            return false;
        }
        let Some(asker) = self.asker(link, head) else { return true };
        if let Err(refusal) = self.check_origin(head) {
            // A page that may not ask may not read why, either; whoever looks at it can.
            self.answer_refusal(Asker { origin: None, ..asker }, &refusal);
        } else if let Err(refusal) = self.answer_request(route, head, body, asker.clone()) {
            let allowed = methods_of(head.path()).join(", ");
            let is_method = refusal.code == Code::WrongMethod;
            let fields: &[_] = if is_method { &[("allow", allowed.as_str())] } else { &[] };
            self.answer_refusal_with(asker, &refusal, fields);
        }
        true
    }

    fn answer_request(
        &mut self,
        route: Route<'_>,
        head: &RequestHead,
        body: &[u8],
        asker: Asker,
    ) -> Result<(), Refusal> {
        let (method, path) = (head.method.as_str(), head.path());
        let allowed = methods_of(path);
        if allowed.is_empty() {
            return Err(nothing_at(path));
        }
        if !allowed.contains(&method) {
            let allowed = allowed.join(" or ");
            let text =
                format!("cannot {method} `{path}`: it takes {allowed}; see docs/protocol.md");
            return Err(Refusal::new(Code::WrongMethod, text));
        }
        if !matches!(route, Route::Session(_)) {
            self.check_mail("take the request")?;
        }
        match route {
            Route::Session(route) => self.handle_session_request(route, head, body, asker),
            Route::Request => self.ask_over_http(head, body, asker),
            Route::Applications => self.handle_application_request(head, asker),
            Route::Devices | Route::Attach | Route::DeviceSocket(_) => {
                self.handle_device_request(head, body, asker)
            }
            Route::WebSocket | Route::Echo | Route::Ordinary => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One path of each route; a new route does not compile without.
    fn example(route: Route<'_>) -> &'static str {
        match route {
            Route::WebSocket => "/v1/ws",
            Route::Echo => "/diagnostics/echo",
            Route::Attach => "/v1/devices/attach",
            Route::DeviceSocket(_) => "/v1/devices/{device}/ws",
            Route::Session(SessionRoute::Events) => "/v1/sse",
            Route::Session(SessionRoute::Lines) => "/v1/stream",
            Route::Session(SessionRoute::Poll) => "/v1/poll",
            Route::Session(SessionRoute::Commands) => "/v1/commands",
            Route::Request => "/v1/request",
            Route::Devices => "/v1/devices",
            Route::Applications => "/v1/applications/{application}/stats",
            Route::Ordinary => "/health",
        }
    }

    #[test]
    fn every_route_is_among_the_paths() {
        for (_, path) in paths() {
            let example = example(Route::of(path, true));
            assert!(paths().iter().any(|(_, known)| *known == example), "{path}");
        }
    }

    #[test]
    fn every_path_knows_its_methods() {
        for (path, methods) in [
            ("/v1/sse", vec!["GET", "POST"]),
            ("/v1/commands", vec!["POST"]),
            ("/v1/devices", vec!["GET"]),
            ("/v1/devices/attach", vec!["POST"]),
            ("/v1/devices/d1", vec!["GET"]),
            ("/v1/devices/d1/send", vec!["POST"]),
            ("/v1/devices/d1/ws", vec!["GET"]),
            ("/v1/devices/", vec![]),
            ("/v1/devices/a/b/c", vec![]),
        ] {
            assert_eq!(methods_of(path), methods, "{path}");
        }
    }

    #[test]
    fn paths_have_routes() {
        let cases = [
            ("/v1/ws", Route::WebSocket),
            ("/v1/poll", Route::Session(SessionRoute::Poll)),
            ("/v1/devices", Route::Devices),
            ("/v1/devices/d1/send", Route::Devices),
            ("/v1/devices/attach", Route::Attach),
            ("/v1/applications/a/stats", Route::Applications),
            ("/v1/devicesx", Route::Ordinary),
            ("/v1/applications", Route::Ordinary),
            ("/", Route::Ordinary),
        ];
        for (path, route) in cases {
            assert_eq!(Route::of(path, false), route, "{path}");
        }
        assert_eq!(Route::of("/v1/devices/d1/ws", true), Route::DeviceSocket("d1"));
        assert_eq!(Route::of("/v1/devices/d1/ws", false), Route::Devices);
        assert_eq!(Route::of("/v1/devices/a/b/ws", true), Route::Devices);
        assert_eq!(Route::of("/diagnostics/echo", false), Route::Ordinary);
    }

    #[test]
    fn every_path_belongs_to_the_surfaces_that_are_told() {
        for (method, path, expected) in [
            ("GET", "/v1/ws", "clients"),
            ("GET", "/diagnostics/echo", "clients"),
            ("POST", "/v1/sse", "clients"),
            ("POST", "/v1/commands", "clients"),
            ("POST", "/v1/request", "clients publish"),
            ("POST", "/v1/publish", "publish"),
            ("PUT", "/v1/topics/a", "publish"),
            ("GET", "/v1/topics/a", "clients publish"),
            ("GET", "/v1/topics", "clients publish"),
            ("GET", "/v1/history/a", "clients publish"),
            ("GET", "/v1/devices", "devices"),
            ("GET", "/v1/devices/d/ws", "devices"),
            ("GET", "/v1/applications/a/stats", "devices"),
            ("GET", "/metrics", "operators"),
            ("GET", "/v1/slow", "operators"),
            ("GET", "/v1/sessions", "operators"),
            ("GET", "/diagnostics/hiccups", "operators"),
            ("GET", "/", "operators"),
            ("GET", "/page/x.js", "operators"),
            ("GET", "/nothing", "operators"),
            ("GET", "/health", "clients publish devices operators"),
            ("GET", "/ready", "clients publish devices operators"),
        ] {
            let has =
                |surface: &Surface| Surfaces::of(&[*surface]).intersects(surfaces_of(path, method));
            let all: Vec<&str> = Surface::ALL.into_iter().filter(has).map(Surface::name).collect();
            assert_eq!(all.join(" "), expected, "{method} {path}");
        }
    }

    #[test]
    fn every_path_belongs_to_a_surface() {
        for (method, path) in paths() {
            assert!(!surfaces_of(path, &method).is_empty(), "{method} {path}");
        }
    }
}
