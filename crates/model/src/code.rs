//! Stable numbers for everything that can go wrong, and what a peer should do about each.
//!
//! The numbers double as WebSocket close codes (RFC 6455 section 7.4.2 leaves 4000 to 4999 to
//! applications). They are never reused and never change their meaning.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal, $status:literal;)*) => {
        /// The reason of a failure, as a number that programs match. The text beside it may improve.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// A number of a later version, as a client hears it: what to do about it follows from its range.
            Other(u16),
        }

        impl Code {
            /// Every code of this version, in order of number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code with this number.
            pub fn from_number(number: u16) -> Self {
                match number { $($number => Self::$name,)* other => Self::Other(other) }
            }

            /// The number on the wire.
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)* Self::Other(number) => number }
            }

            /// A short stable word for logs and metrics, such as `bad_topic`.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* Self::Other(_) => "other" }
            }

            /// The HTTP status that goes with it where it is answered over HTTP.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* Self::Other(_) => 500 }
            }
        }
    };
}

codes! {
    /// The server is stopping; another node, or this one after its restart, will serve.
    GoingAway = 4000, "going_away", 503;
    /// A mailbox inside the server was full at that moment.
    Busy = 4001, "busy", 503;
    /// The session no longer exists: open another one, and resume from the last positions.
    NoSession = 4002, "no_session", 404;
    /// The response reached its maximum duration: ask again, and resume from the last positions.
    ResponseRolled = 4003, "response_rolled", 503;

    /// The server has reached its limit of connections.
    TooManyConnections = 4100, "too_many_connections", 503;
    /// The peer sends commands faster than it reads the answers.
    TooManyAnswersWaiting = 4101, "too_many_answers_waiting", 429;
    /// The reader fell further behind than its topics' history reaches.
    TooSlow = 4102, "too_slow", 503;
    /// The server received nothing from the peer for the configured time, not even a ping.
    Silent = 4103, "silent", 408;
    /// The server has reached its limit of topics.
    TooManyTopics = 4104, "too_many_topics", 507;
    /// The backbone could not store the publication, or cannot tell whether it did: the text says which.
    NotKept = 4105, "not_kept", 503;
    /// The server has reached its memory limit.
    OutOfMemory = 4106, "out_of_memory", 503;

    /// No session handles such requests now, or none of those that may answer this one.
    NoHandler = 4107, "no_handler", 404;
    /// The answer did not arrive in time.
    TimedOut = 4108, "timed_out", 504;
    /// The session that had the request ended before it answered: the request may have been carried out.
    HandlerGone = 4109, "handler_gone", 502;
    /// Every handler of the request has reached its limit of open requests.
    TooManyRequests = 4110, "too_many_requests", 429;

    /// The device was attached, and is not any more.
    DeviceGone = 4111, "device_gone", 410;
    /// Too many wrong tokens or keys came from this address lately.
    TooManyFailures = 4112, "too_many_failures", 429;
    /// The address has reached its limit of connections, or of requests in this second.
    AddressLimit = 4113, "address_limit", 429;
    /// The principal has reached its limit of named subscribers.
    TooManyNames = 4114, "too_many_names", 429;

    /// Too many operations on patterns are in progress.
    TooManyOperations = 4115, "too_many_operations", 503;
    /// Too many pages of histories are being read from the store.
    TooManyReads = 4116, "too_many_reads", 503;

    /// Too many commands of the session wait for an earlier `subscribe` with a name.
    TooManyChangesWaiting = 4117, "too_many_changes_waiting", 429;

    /// The session has different positions in very many topics: it has to catch up first.
    MustCatchUp = 4118, "must_catch_up", 429;

    /// The command is not valid.
    BadCommand = 4200, "bad_command", 400;
    /// This version has no command of that `type`.
    UnknownCommand = 4201, "unknown_command", 400;
    /// The topic name breaks a rule.
    BadTopic = 4202, "bad_topic", 400;
    /// The selector breaks a rule.
    BadSelector = 4203, "bad_selector", 400;
    /// The payload does not match its kind, such as JSON that does not parse.
    BadPayload = 4204, "bad_payload", 400;
    /// The payload is larger than the limit.
    PayloadTooLarge = 4205, "payload_too_large", 413;
    /// A WebSocket message is larger than the limit.
    MessageTooLarge = 4206, "message_too_large", 413;
    /// The session has reached its limit of subscriptions.
    TooManySubscriptions = 4207, "too_many_subscriptions", 429;
    /// The frame breaks RFC 6455.
    BadFrame = 4208, "bad_frame", 400;
    /// A text frame is not UTF-8.
    BadUtf8 = 4209, "bad_utf8", 400;
    /// The HTTP request is malformed or breaks a limit.
    BadRequest = 4210, "bad_request", 400;
    /// The request took too long to arrive.
    SlowRequest = 4211, "slow_request", 408;
    /// Nothing exists under that path, or the topic has no value.
    NotFound = 4212, "not_found", 404;
    /// The path does not support that method.
    WrongMethod = 4213, "wrong_method", 405;
    /// A batch has too many publications.
    BatchTooLarge = 4214, "batch_too_large", 413;
    /// The session is not subscribed to that selector.
    NotSubscribed = 4216, "not_subscribed", 404;
    /// The topic's newest sequence is not the expected one.
    SequenceMismatch = 4217, "sequence_mismatch", 409;
    /// The command needs a store, and the server has none.
    NoStore = 4218, "no_store", 409;
    /// The name, or the list, has positions of too many topics.
    TooManyPositions = 4219, "too_many_positions", 429;

    /// The filter breaks a rule.
    BadFilter = 4220, "bad_filter", 400;
    /// The handler declined the request.
    Declined = 4221, "declined", 422;
    /// The request is not open: it was answered already, or it timed out.
    NoRequest = 4222, "no_request", 404;
    /// No device of that name has been attached lately.
    NoDevice = 4223, "no_device", 404;
    /// Another connection attached under the same name.
    TakenOver = 4224, "taken_over", 409;
    /// The key of a publication or request is longer than the limit.
    KeyTooLong = 4230, "key_too_long", 400;
    /// An acknowledged position lies beyond the newest publication of its topic.
    BeyondHead = 4231, "beyond_head", 400;
    /// The topic is not at the position that the request's condition names.
    PreconditionFailed = 4235, "precondition_failed", 412;
    /// The command belongs to a feature that `welcome`, or `hello`, did not list.
    MissingFeature = 4236, "missing_feature", 400;
    /// The server does not decode this encoding of the body, such as gzip or a charset other than UTF-8.
    UnsupportedMediaType = 4237, "unsupported_media_type", 415;
    /// The peer is none of the proxies that the server trusts, and its listener expects PROXY headers.
    UntrustedProxy = 4240, "untrusted_proxy", 403;
    /// The connection does not begin with a PROXY header that can be read.
    BadProxyHeader = 4241, "bad_proxy_header", 400;
    /// The connection took too long to open.
    SlowOpening = 4242, "slow_opening", 408;
    /// The TLS handshake, or a record after it, cannot be accepted.
    TlsFailed = 4243, "tls_failed", 400;
    /// The listener requires a client certificate, or the one that was shown does not hold.
    BadClientCertificate = 4244, "bad_client_certificate", 401;
    /// A header's name or value breaks a rule.
    BadHeader = 4250, "bad_header", 400;
    /// The name of a header comes twice.
    RepeatedHeader = 4251, "repeated_header", 400;
    /// The header's name begins with `$`: only the server sets such headers.
    ReservedHeader = 4252, "reserved_header", 400;
    /// There are too many headers, or they have too many bytes.
    HeadersTooLarge = 4253, "headers_too_large", 413;

    /// The token is unknown.
    BadToken = 4300, "bad_token", 401;
    /// The principal may not do that.
    NotAllowed = 4301, "not_allowed", 403;
    /// Pages of this origin may not connect.
    ForeignOrigin = 4302, "foreign_origin", 403;
    /// The topic belongs to the server.
    ReservedTopic = 4303, "reserved_topic", 403;
    /// The server does not have the name in the request's `Host`.
    UnknownHost = 4304, "unknown_host", 421;
    /// The server requires a token, and none was presented in time.
    NotAuthenticated = 4305, "not_authenticated", 401;
}

/// The best reaction of a peer to a code. It follows from the number's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// 4000 to 4099: try again at once, here or on another node.
    RetryNow,
    /// 4100 to 4199: try again later, with growing pauses.
    RetryLater,
    /// 4200 to 4299: the same thing will fail again; change it first.
    ChangeFirst,
    /// 4300 to 4399: get other credentials first.
    AuthenticateFirst,
}

impl Code {
    /// In how many seconds it is worth to come back, where that is known.
    pub fn retry_after(self) -> Option<&'static str> {
        match self {
            Self::TooManyFailures => Some("60"),
            Self::AddressLimit => Some("1"),
            _ => None,
        }
    }

    /// The best reaction of a peer to this code.
    pub fn advice(self) -> Advice {
        match self.number() {
            4000..=4099 => Advice::RetryNow,
            4200..=4299 => Advice::ChangeFirst,
            4300..=4399 => Advice::AuthenticateFirst,
            // No code lies beyond the ranges.
            _ => Advice::RetryLater,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number(), self.word())
    }
}

/// A command or request that was not carried out: the code, and the three things to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stable number.
    pub code: Code,
    /// The failure, its reason and its remedy: one lower-case sentence, no full stop.
    pub text: String,
}

impl Refusal {
    /// A refusal with this code and sentence.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// 4210, for a request that is not what its path takes: `why` says what is wrong with it, and the cure.
    pub fn bad_request(why: impl fmt::Display) -> Self {
        Self::new(Code::BadRequest, format!("cannot read the request: {why}"))
    }

    /// 4204, for a payload that is not what its kind says.
    pub fn bad_payload(why: impl fmt::Display) -> Self {
        Self::new(Code::BadPayload, format!("cannot publish the payload: {why}"))
    }

    /// 4205, for a payload beyond what any topic takes.
    pub fn payload_too_large(len: usize, bytes_max: usize) -> Self {
        let text = format!(
            "cannot publish the payload: it has {len} bytes and payload_bytes_max is {bytes_max}; send less at a \
             time, or raise the limit in the configuration"
        );
        Self::new(Code::PayloadTooLarge, text)
    }

    /// 4111, for a device that was chosen a moment ago.
    pub fn device_went(name: &str) -> Self {
        Self::new(Code::DeviceGone, format!("cannot ask `{name}`: it just went; ask again later"))
    }

    /// 4223.
    pub fn no_device(name: &str) -> Self {
        let text = format!(
            "cannot find `{name}`: no such device was attached lately; check the application and the device"
        );
        Self::new(Code::NoDevice, text)
    }

    /// 4302, with what lets pages of `origin` in.
    pub fn foreign_origin(origin: &str) -> Self {
        let text = format!(
            "cannot serve pages of `{origin}`: it is not this server's own origin; put origins = [\"{origin}\"] under \
             [access] in its configuration, beside those that are there, or start it with --origin {origin}"
        );
        Self::new(Code::ForeignOrigin, text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code.number())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_in_range_and_found_again() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].number() < pair[1].number(), "{} {}", pair[0], pair[1]);
        }
        for &code in Code::ALL {
            assert!((4000..4400).contains(&code.number()));
            assert_eq!(Code::from_number(code.number()), code);
            assert!(!matches!(code, Code::Other(_)));
        }
    }

    #[test]
    fn a_number_of_a_later_version_keeps_its_range() {
        let advice_of = |number| Code::from_number(number).advice();
        assert_eq!(Code::from_number(4098), Code::Other(4098));
        assert_eq!(Code::Other(4098).number(), 4098);
        assert_eq!(advice_of(4098), Advice::RetryNow);
        assert_eq!(advice_of(4198), Advice::RetryLater);
        assert_eq!(advice_of(4298), Advice::ChangeFirst);
        assert_eq!(advice_of(4398), Advice::AuthenticateFirst);
    }
}
