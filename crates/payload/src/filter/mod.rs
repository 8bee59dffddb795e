//! Filters: expressions over a payload and its topic (CEL, the Common Expression Language), without macros that
//! loop. The cost of a filter is known from its text ([`cost`]); why one cannot be used is said in its author's words
//! ([`FilterError`]).

mod cost;
mod error;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Env, Program, Value};
use model::{Code, HeaderValue, PayloadKind, Publication, Refusal, TopicName};

pub use self::error::FilterError;

/// A subscription's filter, ready to be asked.
pub struct Filter {
    program: Program,
    /// Whether it names `headers`: those that no filter names are not read.
    asks_headers: bool,
}

/// Payloads read for filters; several filters ask about the same ones.
pub struct PayloadReader {
    environment: Arc<Env>,
    read: RefCell<VecDeque<(Publication, Value)>>,
}

/// Payloads whose values are remembered.
const READ_MAX: usize = 16;

impl Default for PayloadReader {
    fn default() -> Self {
        Self { environment: Arc::new(Env::stdlib()), read: RefCell::default() }
    }
}

impl PayloadReader {
    /// Whether a filter accepts a publication. One that cannot be decided, such as for a member that is not
    /// there, is not accepted.
    pub fn accepts(&self, filter: &Filter, topic: &TopicName, publication: &Publication) -> bool {
        let mut context = Context::with_env(Arc::clone(&self.environment));
        context.add_variable_from_value("data", self.value_of(publication));
        context.add_variable_from_value("topic", topic.as_str());
        if filter.asks_headers {
            context.add_variable_from_value("headers", headers_of(publication));
        }
        // A fault of the interpreter must not cost the shard.
        let run = AssertUnwindSafe(|| filter.program.execute(&context));
        matches!(catch_unwind(run), Ok(Ok(Value::Bool(true))))
    }

    fn value_of(&self, publication: &Publication) -> Value {
        let mut read = self.read.borrow_mut();
        let at = publication.payload().as_ptr();
        // What is remembered is kept alive, so that no other publication can be at its place.
        if let Some((_, value)) = read.iter().find(|(known, _)| known.payload().as_ptr() == at) {
            return value.clone();
        }
        let value = match publication.kind() {
            PayloadKind::Json => serde_json::from_slice::<serde_json::Value>(publication.payload())
                .ok()
                .and_then(|json| cel::to_value(json).ok())
                .unwrap_or(Value::Null),
            PayloadKind::Text => {
                Value::from(String::from_utf8_lossy(publication.payload()).into_owned())
            }
            PayloadKind::Bytes => Value::from(publication.payload().to_vec()),
        };
        if read.len() >= READ_MAX {
            read.pop_front();
        }
        read.push_back((publication.clone(), value.clone()));
        value
    }
}

/// The headers of a publication as a map. Numbers are integers where they can be, others are floating-point.
fn headers_of(publication: &Publication) -> Value {
    let headers = publication.headers().unwrap_or_default();
    let value = |value| match value {
        HeaderValue::Text(text) => Value::from(text.to_owned()),
        HeaderValue::Boolean(is_true) => Value::Bool(is_true),
        HeaderValue::Bytes(bytes) => Value::from(bytes.to_vec()),
        HeaderValue::Number(text) => match text.parse::<i64>() {
            Ok(whole) => Value::Int(whole),
            Err(_) => Value::Float(text.parse().unwrap_or(f64::NAN)),
        },
    };
    let entries = headers.iter().map(|(name, it)| (Key::from(name.to_owned()), value(it)));
    Value::Map(Map { map: Arc::new(entries.collect()) })
}

/// The filter that `text` spells out.
///
/// # Errors
/// It is no expression, or one that loops or may go through a payload too often.
pub fn compile(text: &str) -> Result<Filter, Refusal> {
    read(text).map_err(|error| Refusal::new(Code::BadFilter, error.to_string()))
}

/// Checks the text of a filter without using it.
///
/// # Errors
/// The same, with the place in the text.
pub fn check(text: &str) -> Result<(), FilterError> {
    read(text).map(drop)
}

fn read(text: &str) -> Result<Filter, FilterError> {
    const DEPTH_MAX: usize = 64;
    // The parser goes as deep as the text does.
    let opened = text.bytes().filter(|byte| b"([{!-?.".contains(byte)).count();
    if opened > DEPTH_MAX {
        let why = format!("it is nested too deep, or has more than {DEPTH_MAX} operators");
        return Err(FilterError::new(why));
    }
    let compiled = catch_unwind(|| Program::compile(text));
    let compiled = compiled.map_err(|_| FilterError::new("the parser failed over it"))?;
    let program = compiled.map_err(|errors| FilterError::of_parser(text, &errors))?;
    match cost::too_much(program.expression()) {
        Some(why) => Err(FilterError::new(why)),
        None => {
            let asks_headers = program.references().has_variable("headers");
            Ok(Filter { program, asks_headers })
        }
    }
}

/// A filter over sessions that handle requests.
pub struct HandlerFilter {
    filter: Filter,
    environment: Arc<Env>,
}

impl HandlerFilter {
    /// The filter that `text` spells out.
    ///
    /// # Errors
    /// It is no expression, or one that loops or may go through a payload too often.
    pub fn compile(text: &str) -> Result<Self, Refusal> {
        Ok(Self { filter: compile(text)?, environment: Arc::new(Env::stdlib()) })
    }

    /// Whether it accepts a session. One that cannot be decided is not accepted.
    pub fn accepts(&self, session: &str, principal: &str, client: &str) -> bool {
        let mut context = Context::with_env(Arc::clone(&self.environment));
        context.add_variable_from_value("session", session);
        context.add_variable_from_value("principal", principal);
        context.add_variable_from_value("client", client);
        let run = AssertUnwindSafe(|| self.filter.program.execute(&context));
        matches!(catch_unwind(run), Ok(Ok(Value::Bool(true))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{HeaderOrigin, Headers, Limits, Moment, Payload, Sequence};

    use super::*;

    fn publication(kind: PayloadKind, bytes: &[u8]) -> Publication {
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        Publication::new(Payload::new(kind, bytes), Sequence::START.next(), now)
    }

    fn check_filter(text: &str, json: &str, is_accepted: bool) {
        let reader = PayloadReader::default();
        let topic = TopicName::parse("prices/abc", &Limits::default()).expect("valid");
        let filter = compile(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
        let publication = publication(PayloadKind::Json, json.as_bytes());
        for _ in 0..2 {
            assert_eq!(reader.accepts(&filter, &topic, &publication), is_accepted, "{text} {json}");
        }
    }

    #[test]
    fn filters_decide_on_payload_and_topic() {
        let price = r#"{"price":101.5,"size":7,"tags":["fast","eu"],"venue":{"name":"X"}}"#;
        check_filter("data.price > 100.0", price, true);
        check_filter("data.price > 100", price, true);
        check_filter("data.size >= 8", price, false);
        check_filter("data.size == 7 && data.venue.name == 'X'", price, true);
        check_filter("'fast' in data.tags", price, true);
        check_filter("topic.startsWith('prices/')", price, true);
        check_filter("has(data.absent) || data.size < 10", price, true);
        check_filter("data.absent > 1", price, false);
        check_filter("data.price", price, false);
        check_filter("data == 'no object'", "7", false);
    }

    #[test]
    fn filters_decide_on_headers() {
        let mut headers = Headers::default();
        for (name, value) in [
            ("unit", HeaderValue::Text("EUR")),
            ("n", HeaderValue::Number("7")),
            ("rate", HeaderValue::Number("1.50")),
            ("urgent", HeaderValue::Boolean(true)),
            ("raw", HeaderValue::Bytes(&[1])),
            ("content-type", HeaderValue::Text("x")),
        ] {
            headers.push(name, value, HeaderOrigin::Client).expect("valid");
        }
        let now = Moment { elapsed: Duration::ZERO, unix_ms: 0 };
        let topic = TopicName::parse("a", &Limits::default()).expect("valid");
        let payload = Payload::with_headers(PayloadKind::Json, &headers, b"{\"n\":7}");
        let with = Publication::new(payload, Sequence::START.next(), now);
        let without = publication(PayloadKind::Json, b"{\"n\":7}");
        let reader = PayloadReader::default();
        for (text, of_with, of_without) in [
            ("headers.unit == 'EUR'", true, false),
            ("headers['content-type'] == 'x'", true, false),
            ("headers.n == data.n", true, false),
            ("headers.rate > 1.2 && headers.rate < 1.6", true, false),
            ("headers.urgent", true, false),
            ("headers.raw == b'\\x01'", true, false),
            ("has(headers.unit)", true, false),
            ("!has(headers.unit)", false, true),
            ("headers.unit == 7", false, false),
            ("data.n == 7", true, true),
        ] {
            let filter = compile(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
            let accepts = |publication| reader.accepts(&filter, &topic, publication);
            assert_eq!((accepts(&with), accepts(&without)), (of_with, of_without), "{text}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused_and_what_loops_too() {
        let deep = "(".repeat(500) + "1" + &")".repeat(500);
        let copies = ["data"; 200].join("+") + " == ''";
        for text in
            ["", &copies, "data.price >", "data.all(x, x > 1)", "[1].map(x, x)[0] == 1", &deep]
        {
            let refusal = compile(text).err().unwrap_or_else(|| panic!("no refusal: {text}"));
            assert_eq!(refusal.code, Code::BadFilter, "{refusal}");
        }
        let long = (0..60).map(|at| format!("data.f == {at}")).collect::<Vec<_>>().join(" || ");
        assert!(compile(&long).is_ok());
    }

    proptest::proptest! {
        /// Texts of the pieces that filters are made of: whatever comes out, nothing panics, and no recursion
        /// goes too deep.
        #[test]
        fn no_text_and_no_payload_make_a_filter_panic(
            pieces in proptest::collection::vec(0..PIECES.len(), 0..40),
            json in "[-0-9a-z{}\\[\\]\":,. ]{0,40}",
        ) {
            let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
            if let Ok(filter) = compile(&text) {
                let topic = TopicName::parse("a/b", &Limits::default()).expect("valid");
                let publication = publication(PayloadKind::Json, json.as_bytes());
                PayloadReader::default().accepts(&filter, &topic, &publication);
            }
        }
    }

    const PIECES: &[&str] = &[
        "data",
        "headers",
        "topic",
        ".a",
        "[0]",
        "[-1]",
        "(",
        ")",
        "{",
        "}",
        "\"x\"",
        "'",
        "1",
        "0",
        "-",
        "9223372036854775807",
        "1.5",
        " + ",
        " * ",
        " / ",
        " % ",
        " == ",
        " < ",
        " in ",
        " && ",
        " || ",
        "!",
        " ? ",
        " : ",
        "size(",
        "has(",
        "string(",
        "int(",
        ".startsWith(",
        ".map(x, ",
        "[1, 2]",
        "true",
        "null",
        ",",
        "b'x'",
        "\\u",
        "é",
    ];
}
