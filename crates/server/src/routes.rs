//! Which paths this server has, and what takes a request to each.

use engine::{Io, Socket};
use model::{Code, Refusal};
use protocol::http::RequestHead;

use crate::asker::Asker;
use crate::shard::Shard;

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

impl<I: Io> Shard<I> {
    /// Takes a whole request that the shards answer among themselves; answers false if it is not such a one.
    pub(crate) fn take_request(&mut self, socket: Socket, head: &RequestHead, body: &[u8]) -> bool {
        let route = Route::of(head.path(), false);
        // Whether a page may ask is answered for all paths at once.
        if route == Route::Ordinary || head.method == "OPTIONS" {
            return false;
        }
        let Some(asker) = self.asker(socket, head) else { return true };
        if let Err(refusal) = self.check_origin(head) {
            // A page that may not ask may not read why, either; whoever looks at it can.
            self.answer_refusal(Asker { origin: None, ..asker }, &refusal);
        } else if let Err(refusal) = self.answer_request(route, head, body, asker.clone()) {
            self.answer_refusal(asker, &refusal);
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
        let is_post_only = matches!(route, Route::Request | Route::Session(SessionRoute::Commands));
        let is_allowed = head.method == "POST" || head.method == "GET" && !is_post_only;
        if !is_allowed {
            let (method, path) = (&head.method, head.path());
            let allowed = if is_post_only { "POST" } else { "GET or POST" };
            let text =
                format!("cannot {method} `{path}`: it takes {allowed}; see docs/protocol.md");
            return Err(Refusal::new(Code::WrongMethod, text));
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
}
