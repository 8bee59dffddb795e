//! Entity tags and what requests make depend on them. RFC 9110, sections 8.8.3 and 13.
//!
//! The tag of a topic's value is its position: `"EPOCH:SEQUENCE"`.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use model::{Code, Epoch, Expected, Position, Refusal, Sequence};

/// The tag of what stands at a position.
pub(crate) fn tag_of(position: &Position) -> String {
    format!("\"{}:{}\"", position.epoch, position.sequence)
}

/// The same as a field. An epoch has nothing that a field could not.
pub(crate) fn etag(position: &Position) -> Option<HeaderValue> {
    HeaderValue::from_str(&tag_of(position)).ok()
}

/// The value of a field, all its lines together. The engine has read them as UTF-8 already.
fn list_of(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines = headers.get_all(name).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(",").trim().to_owned())
}

/// Whether a list of tags has this one in it. A weak tag (`W/"…"`) counts where `weak_too`.
fn lists(list: &str, tag: &str, weak_too: bool) -> bool {
    // No tag of ours has a comma in it: of others that have, no part is one of ours.
    list == "*"
        || list.split(',').map(str::trim).any(|one| match one.strip_prefix("W/") {
            Some(weak) => weak_too && weak == tag,
            None => one == tag,
        })
}

/// The result of the conditions of a GET.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// It is to be answered.
    Told,
    /// Whoever asks has it already.
    NotModified,
}

/// Whether what stands at a position is to be told.
///
/// # Errors
/// `If-Match` names something else (`Code::PreconditionFailed`).
pub(crate) fn check_read(headers: &HeaderMap, position: &Position) -> Result<Read, Refusal> {
    let tag = tag_of(position);
    if let Some(list) = list_of(headers, header::IF_MATCH)
        && !lists(&list, &tag, false)
    {
        let text = format!(
            "cannot get that version: If-Match says {list} and the value's tag is {tag}; ask without \
             If-Match"
        );
        return Err(Refusal::new(Code::PreconditionFailed, text));
    }
    let known = list_of(headers, header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|list| lists(&list, &tag, true));
    Ok(if is_known { Read::NotModified } else { Read::Told })
}

/// The position that a PUT expects of its topic: `If-Match: "EPOCH:SEQUENCE"`, `If-None-Match: *`, or nothing.
///
/// # Errors
/// It cannot come about (`Code::PreconditionFailed`), or is none of these (`Code::BadRequest`).
pub(crate) fn expected(headers: &HeaderMap) -> Result<Option<Expected>, Refusal> {
    let matched = list_of(headers, header::IF_MATCH);
    let unmatched = list_of(headers, header::IF_NONE_MATCH);
    match (matched, unmatched) {
        (None, None) => Ok(None),
        (None, Some(list)) if list == "*" => Ok(Some(Expected::sequence(Sequence::START))),
        (None, Some(list)) => Err(bad(&format!("If-None-Match says {list}; say * or nothing"))),
        (Some(_), Some(_)) => Err(bad("it has If-Match and If-None-Match; say one of them")),
        (Some(tag), None) => expected_of(&tag).map(Some),
    }
}

fn expected_of(tag: &str) -> Result<Expected, Refusal> {
    if tag.starts_with("W/") {
        let text = format!(
            "cannot publish: If-Match says {tag}, and a weak tag matches nothing (a proxy that \
             compresses makes tags weak); send the tag without its W/"
        );
        return Err(Refusal::new(Code::PreconditionFailed, text));
    }
    let quoted = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let quoted = quoted.filter(|text| !text.contains('"'));
    let text = quoted.ok_or_else(|| {
        bad(&format!(
            "If-Match says {tag}; say one tag, as the ETag of an answer: \"EPOCH:SEQUENCE\""
        ))
    })?;
    let (epoch, sequence) = text.rsplit_once(':').unwrap_or(("", text));
    let sequence = sequence.parse().ok().and_then(Sequence::new);
    match sequence.filter(|_| !epoch.is_empty()) {
        Some(sequence) => Ok(Expected { sequence, epoch: Some(Epoch::new(epoch)) }),
        None => {
            let text = format!(
                "cannot publish: If-Match says {tag}, which is the tag of nothing here; say the ETag \
                 of an answer: \"EPOCH:SEQUENCE\""
            );
            Err(Refusal::new(Code::PreconditionFailed, text))
        }
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("cannot read the condition of the request: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    fn position(epoch: &str, sequence: u64) -> Position {
        Position { epoch: Epoch::new(epoch), sequence: Sequence::new(sequence).expect("small") }
    }

    #[test]
    fn a_put_expects_what_its_condition_says() {
        let at = |epoch: &str, sequence| {
            let Position { epoch, sequence } = position(epoch, sequence);
            Ok(Some(Expected { sequence, epoch: Some(epoch) }))
        };
        type Fields = &'static [(&'static str, &'static str)];
        let rows: [(Fields, Result<Option<Expected>, Code>); 14] = [
            (&[], Ok(None)),
            (&[("if-none-match", "*")], Ok(Some(Expected::sequence(Sequence::START)))),
            (&[("if-match", "\"e1:7\"")], at("e1", 7)),
            (&[("if-match", " \"a:b:0\" ")], at("a:b", 0)),
            (&[("if-match", "W/\"e1:7\"")], Err(Code::PreconditionFailed)),
            (&[("if-match", "\"e1\"")], Err(Code::PreconditionFailed)),
            (&[("if-match", "\"e1:9007199254740992\"")], Err(Code::PreconditionFailed)),
            (&[("if-match", "\":7\"")], Err(Code::PreconditionFailed)),
            (&[("if-match", "e1:7")], Err(Code::BadRequest)),
            (&[("if-match", "*")], Err(Code::BadRequest)),
            (&[("if-match", "\"e1:7\", \"e1:8\"")], Err(Code::BadRequest)),
            (&[("if-match", "\"e1:7\""), ("if-match", "\"e1:8\"")], Err(Code::BadRequest)),
            (&[("if-none-match", "\"e1:7\"")], Err(Code::BadRequest)),
            (&[("if-match", "\"e1:7\""), ("if-none-match", "*")], Err(Code::BadRequest)),
        ];
        for (fields, wanted) in rows {
            let found = expected(&headers(fields)).map_err(|refusal| refusal.code);
            assert_eq!(found, wanted, "{fields:?}");
        }
    }

    #[test]
    fn a_get_is_told_what_it_does_not_have() {
        for (name, list, wanted) in [
            ("if-none-match", "\"e1:7\"", Ok(Read::NotModified)),
            ("if-none-match", "W/\"e1:7\"", Ok(Read::NotModified)),
            ("if-none-match", "\"x\", \"e1:7\"", Ok(Read::NotModified)),
            ("if-none-match", "*", Ok(Read::NotModified)),
            ("if-none-match", "\"e2:7\"", Ok(Read::Told)),
            ("if-none-match", "\"e1:70\"", Ok(Read::Told)),
            ("if-none-match", "e1:7", Ok(Read::Told)),
            ("if-match", "\"e1:7\"", Ok(Read::Told)),
            ("if-match", "*", Ok(Read::Told)),
            ("if-match", "W/\"e1:7\"", Err(Code::PreconditionFailed)),
            ("if-match", "\"e1:6\"", Err(Code::PreconditionFailed)),
            ("accept", "*/*", Ok(Read::Told)),
        ] {
            let found = check_read(&headers(&[(name, list)]), &position("e1", 7));
            assert_eq!(found.map_err(|refusal| refusal.code), wanted, "{name}: {list}");
        }
    }
}
