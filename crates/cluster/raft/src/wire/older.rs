//! A version of the messages that only tests have. It represents the version before the present
//! one.
//!
//! A node of this version can't ask what a follower has on disk. It promises nothing as a follower,
//! and reports no round trips.

use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire, decode_payload};

use super::message::{Age, Answer, Append, News, Took};
use super::record::{Ballot, EntryRecord, Point};
use super::version::WireVersion;

/// Entries in the older version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OlderAppend {
    age: Option<Age>,
    heartbeat_ms: u32,
    ballot: Ballot,
    previous: Option<Point>,
    committed: Option<Point>,
    entries: Vec<EntryRecord>,
}

/// An answer in the older version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct OlderAnswer(Answer);

impl From<Append> for OlderAppend {
    fn from(append: Append) -> Self {
        let Append { version: _, ballot, previous, committed, entries, news } = append;
        let News { age, asks_held: _, heartbeat_ms } = news;
        Self { age, heartbeat_ms, ballot, previous, committed, entries }
    }
}

impl From<OlderAppend> for Append {
    fn from(older: OlderAppend) -> Self {
        let OlderAppend { age, heartbeat_ms, ballot, previous, committed, entries } = older;
        let news = News { age, asks_held: false, heartbeat_ms };
        Self { version: WireVersion::OLDEST, ballot, previous, committed, entries, news }
    }
}

impl From<Answer> for OlderAnswer {
    fn from(answer: Answer) -> Self {
        Self(match answer {
            Answer::Took(Took { verdict, .. }) => {
                Answer::Took(Took { verdict, promise_ms: 0, held: None, round_trips: Vec::new() })
            }
            other => other,
        })
    }
}

impl Wire for OlderAppend {
    const KIND: u16 = Append::KIND;
    const VERSION: u16 = WireVersion::OLDEST.number();
    const BYTES_MAX: usize = Append::BYTES_MAX;
}

impl Wire for OlderAnswer {
    const KIND: u16 = Answer::KIND;
    const VERSION: u16 = WireVersion::OLDEST.number();
    const BYTES_MAX: usize = Answer::BYTES_MAX;
}

/// Reads the payload of entries of the older version.
pub(super) fn decode_append(version: u16, payload: &[u8]) -> Result<Append, DecodeError> {
    assert_eq!(version, WireVersion::OLDEST.number());
    decode_payload::<OlderAppend>(payload).map(Append::from)
}

/// Reads the payload of an answer of the older version.
pub(super) fn decode_answer(version: u16, payload: &[u8]) -> Result<Answer, DecodeError> {
    assert_eq!(version, WireVersion::OLDEST.number());
    decode_payload(payload)
}
