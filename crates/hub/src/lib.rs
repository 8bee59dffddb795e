//! Who gets what, and when: topics, sessions, audiences. Pure: no sockets, no clock, no threads.
//!
//! One [`Hub`] belongs to one shard. It keeps the only in-memory history. A session holds cursors,
//! never a queue of publications: while it keeps up it is *in step* with its audiences and costs
//! nothing per publication; when it falls behind it remembers one delivery number per audience and
//! reads on from the shard's recent deliveries, or from the topics' histories.
//!
//! ```text
//!  backbone, store              this shard                            other shards
//!                 ┌────────────────────────────────────────────┐
//!  handle_kept ──▶│ between_shards ── poll_mail ───────────────┼──▶ handle_mail
//!  handle_head    │   home: who follows its topics             │
//!                 │   follow: what it reads elsewhere ◀────────┼─── handle_mail
//!                 │        │                                   │
//!                 │        ▼                                   │
//!  poll_ask    ◀──│ topics: histories, recent deliveries       │
//!                 │        │                                   │
//!                 │        ▼                                   │
//!  subscribe   ──▶│ audiences: same selectors, options and     │
//!  unsubscribe    │   encoding; a batch is made once for all   │
//!                 │        │              │                    │
//!                 │     in step        behind                  │
//!                 │        │              ▼                    │
//!  poll_page   ◀──│        │     sessions: each reads on from  │
//!  handle_page ──▶│        ▼     where it stands               │
//!                 │ sending: flush ◀──────┘                    │
//!                 └──────────┬─────────────────────────────────┘
//!                            ▼ Outlet::send
//! ```
//!
//! # What to call, in which order
//!
//! A shard has one hub and calls it in turns. In each:
//!
//! 1. [`Hub::handle_time`], before anything that happens in this turn.
//! 2. Inputs, in the order in which they came: [`Hub::handle_mail`] of other shards; [`Hub::handle_kept`],
//!    [`Hub::handle_head`] and [`Hub::handle_page`] of the backbone and its store; [`Hub::open_session`],
//!    [`Hub::subscribe`], [`Hub::unsubscribe`], [`Hub::close_session`] for clients; [`Hub::handle_writable`] once a
//!    connection that was full has room; [`Hub::handle_tick`] about once a second. [`Hub::renew_some`] goes on with an epoch
//!    that began ([`Hub::handle_epoch`]).
//! 3. [`Hub::poll_mail`] for other shards, until there is none: they need not wait for this one's connections. Mail that
//!    finds no room goes back by [`Hub::handle_mail_refused`], and [`Hub::handle_room`] says when there is room again.
//! 4. [`Hub::flush`] sends: batches to audiences, then to single sessions what they lack. It answers whether there is
//!    more; [`Hub::due_at`] says when what is held back is due.
//! 5. The other outputs, until there are none: [`Hub::poll_closing`] and [`Hub::poll_granted`] for connections,
//!    [`Hub::poll_ask`] for the backbone, [`Hub::poll_page`] for the store, [`Hub::poll_beyond`] for the owner of the epochs.
//!
//! What a turn costs is counted in steps ([`Hub::work`]), so that the caller can end it.
//!
//! # Where what is
//!
//! `topics` (what is known and kept of each), `between_shards` (the home of a topic and those that follow it), `audiences` (who
//! reads the same stream, who is joining), `sessions` (where each stands, how it reads on when it is behind), `sending` (batches,
//! bytes), `tables` (what is named by small numbers). What the hub keeps is in types that know nothing of the hub and are tested
//! alone; what it does with them is in files that implement [`Hub`], which no other file imports. [`Requests`] and [`Devices`]
//! stand beside the hub and share nothing with it.
#![forbid(unsafe_code)]

mod audiences;
mod between_shards;
mod carry_on;
mod counters;
mod devices;
mod hub;
mod operations;
mod outbox;
mod requests;
mod sending;
mod sessions;
mod tables;
mod topics;

pub use audiences::delta::Delta;
pub use between_shards::epochs::Beyond;
pub use between_shards::mail::{HubMail, ToldFor, TopicNumber, TopicState};
pub use counters::Counters;
pub use devices::{Device, DevicePlace, Devices};
pub use hub::{Hub, HubOptions, Listing};
#[cfg(feature = "checks")]
#[doc(hidden)]
pub use requests::checks::check_requests;
pub use requests::{
    Accepts, Ask, Outcome, Registration, RequestCounters, RequestMail, RequestOutput, Requests,
};
pub use sending::encoder::{Encoder, EncodingIndex, Form, Outlet, Piece, Progress, Record, Sent};
pub use sending::payloads::Payloads;
pub use sessions::fetched::{PageTicket, PageWanted};
pub use sessions::lag::{SessionLook, SlowSession};
pub use tables::chunks::Chunks;
pub use tables::connections::{Closed, ConnectionId, Connections, ShardConnection};
pub use tables::index::{SessionIndex, ShardIndex, home_shard, home_shard_of};
pub use topics::selector_tree::SelectorTree;
pub use topics::topic::{Lateness, PolicyIndex};
