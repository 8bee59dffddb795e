//! Desks: each owns the state of one kind of question, is handed what comes (`handle_*`) and asked for what follows
//! (`poll_*`), and knows neither shard nor connection.

mod devices;
mod history;
mod http;
mod publish;
mod requests;
mod statistics;
mod subscribers;

pub(crate) use self::devices::{Attachment, DeviceDesk};
pub use self::history::HistoryReply;
pub(crate) use self::history::{HistoryDesk, HistoryRead, StoreRead};
pub(crate) use self::http::HttpDesk;
pub(crate) use self::publish::{Parked, PublishDesk};
pub(crate) use self::requests::{Handler, RequestDesk};
pub(crate) use self::statistics::Statistics;
pub(crate) use self::subscribers::{Change, Names, Positions, SubscriberDesk, positions_rule};
