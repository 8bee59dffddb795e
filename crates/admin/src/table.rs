//! `GET /v1/topics?selector=…&values=true`: topics with their values, in pages of bounded count and bytes.

use std::collections::VecDeque;
use std::iter::once;
use std::sync::Arc;

use axum::response::Response;
use futures_util::future::join_all;
use model::{Refusal, TopicName};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::asked::SHARD_ANSWER_MAX;
use crate::error::no_answer;
use crate::members::members_of;
use crate::pieces::{Part, json_of, opened};
use crate::question::{Listed, Question, Shards, Value};
use crate::topics::{bytes_told, end_of_list};

/// Topics whose values are asked for at a time.
const AT_A_TIME: usize = 256;

/// A topic with its value, if one is kept.
#[derive(Debug)]
struct Row {
    listed: Listed,
    value: Option<Value>,
}

impl Row {
    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.publication.told_bytes());
        self.listed.topic.as_str().len() + value
    }
}

/// The page of these topics, or of as many of them as `table_bytes_max` lets in, but at least one; `has_more` says whether
/// others come after them.
///
/// # Errors
/// A shard does not answer, or there is no memory for it.
pub(crate) async fn page(
    shards: &dyn Shards,
    found: Vec<Listed>,
    has_more: bool,
) -> Result<Response, Refusal> {
    let (count, bytes_max) = (found.len(), shards.limits().table_bytes_max);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    'full: for some in found.chunks(AT_A_TIME) {
        let read = read(shards, some, bytes_max - bytes).await?;
        let is_short = read.len() < some.len();
        for row in read {
            let row_bytes = row.bytes();
            if bytes + row_bytes > bytes_max && !rows.is_empty() {
                break 'full;
            }
            bytes = (bytes + row_bytes).min(bytes_max);
            rows.push(row);
        }
        if is_short {
            break;
        }
    }
    shards.check_memory(bytes_told(bytes, shards.limits()), "list values")?;
    let has_more = has_more || rows.len() < count;
    Ok(json_of(shards.work(), parts_of(rows, has_more)))
}

/// The values of some topics, in order, from the first on: no shard answers many more bytes than these.
async fn read(
    shards: &dyn Shards,
    topics: &[Listed],
    bytes_max: usize,
) -> Result<Vec<Row>, Refusal> {
    let mut names = vec![Vec::new(); shards.count()];
    for listed in topics {
        names[shards.home_of(&listed.topic)].push(listed.topic.clone());
    }
    let asked = names.into_iter().enumerate();
    let asked = asked.map(|(shard, topics)| ask_one(shards, shard, topics, bytes_max));
    let mut values = Vec::new();
    for answer in join_all(asked).await {
        values.push(answer?);
    }
    let row_of = |listed: &Listed| {
        let value = values[shards.home_of(&listed.topic)].pop_front()?;
        Some(Row { listed: listed.clone(), value })
    };
    Ok(topics.iter().map_while(row_of).collect())
}

async fn ask_one(
    shards: &dyn Shards,
    shard: usize,
    topics: Vec<TopicName>,
    bytes_max: usize,
) -> Result<VecDeque<Option<Value>>, Refusal> {
    if topics.is_empty() {
        return Ok(VecDeque::new());
    }
    shards.work().note(topics.len());
    let (answer, hears) = oneshot::channel();
    shards.ask(shard, Question::Values { topics, bytes_max, answer })?;
    let answer = tokio::time::timeout(SHARD_ANSWER_MAX, hears).await;
    Ok(answer.map_err(|_| no_answer())?.map_err(|_| no_answer())?.into())
}

/// The shape of a row before its payload.
#[derive(Serialize)]
struct WireRow<'a> {
    topic: &'a str,
    epoch: &'a str,
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ms: Option<u64>,
}

fn parts_of(
    rows: Vec<Row>,
    has_more: bool,
) -> impl Iterator<Item = Part> + Clone + Send + Unpin + use<> {
    let last = rows.last().filter(|_| has_more).map(|row| &row.listed.topic);
    let (start, end) = (Part::Text("{\"topics\":[".into()), end_of_list(last));
    let rows: Arc<[Row]> = rows.into();
    let told = (0..rows.len()).flat_map(move |index| {
        let Row { listed, value } = &rows[index];
        let position = value.as_ref().map_or(&listed.position, |value| &value.position);
        let wire = WireRow {
            topic: listed.topic.as_str(),
            epoch: position.epoch.as_str(),
            sequence: position.sequence.get(),
            time_ms: value.as_ref().map(|value| value.publication.unix_ms()),
        };
        let separator = if index == 0 { "" } else { "," };
        let payload = value.as_ref().map(|value| Part::Payload(value.publication.clone()));
        let members = value.as_ref().map_or_else(String::new, |it| members_of(&it.publication));
        let begin = Part::Text(format!("{separator}{}{members}", opened(&wire)).into());
        once(begin).chain(payload).chain(once(Part::Text("}".into())))
    });
    once(start).chain(told).chain(once(end))
}
