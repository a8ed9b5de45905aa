//! The state as bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{
    DecodeError, EncodeError, FrameHeader, HEADER_BYTES, Wire, decode, decode_payload, encode,
};
use spillway_prefix::HotTrie;
use spillway_quota::Shares;

use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::state::{Audit, Beside, ClusterClock, Ledger, Requests, Residences, State};
use crate::{Digest, EntryError, Records, WIRE};

/// A snapshot could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It is malformed, or of a version that this program does not read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It contains what only a later version of the program knows.
    #[error("the snapshot: {0}")]
    Newer(EntryError),
    /// What was read is not what was written.
    #[error("the snapshot was written with digest {written} and reads as {read}: take another one")]
    Digest {
        /// The digest of what was written.
        written: Digest,
        /// The digest of what was read.
        read: Digest,
    },
}

impl State {
    /// The whole state as two checked frames. It has what API keys are compared with, but no
    /// secret.
    ///
    /// # Errors
    /// If it is too long, which the limits of the state keep it from.
    pub fn to_snapshot(&self) -> Result<Bytes, EncodeError> {
        let head = encode(&self.to_head())?;
        let layout = if self.is_wire_1() {
            encode(&self.to_layout_1())
        } else if self.is_wire_2() {
            encode(&self.to_layout_2())
        } else if self.is_wire_3() {
            encode(&self.to_layout_3())
        } else if self.is_wire_4() {
            encode(&self.to_layout_4())
        } else {
            encode(&self.to_layout())
        };
        Ok([head, layout?].concat().into())
    }

    /// Reads what [`Self::to_snapshot`] wrote.
    ///
    /// # Errors
    /// If anything about it is not as it was written.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (head, layout) = split(bytes)?;
        let Head { needs, digest: written } = decode(head)?;
        if needs > WIRE {
            return Err(SnapshotError::Newer(EntryError::NewerCommand { needed: needs }));
        }
        let state = Self::from(decode::<Layout>(layout)?);
        let read = state.digest();
        if written == read { Ok(state) } else { Err(SnapshotError::Digest { written, read }) }
    }

    pub(crate) fn to_head(&self) -> Head {
        Head { needs: self.ledger.wire_used, digest: self.digest() }
    }

    /// A message owns what it says: a clone of a few milliseconds is the price.
    pub(crate) fn to_layout(&self) -> Layout {
        let mut older = self.to_layout_4();
        let beside = Beside::take_from(&mut older.records, &mut older.ledger);
        Layout { older, beside, clock: self.clock.clone() }
    }

    /// What nodes of wire version 1 read, as long as nothing newer took part.
    pub(crate) fn to_layout_1(&self) -> Layout1 {
        let Self { records, ledger, requests, audit, .. } = self.clone();
        Layout1 { records, ledger, requests, audit }
    }

    /// The same for nodes of wire version 2.
    pub(crate) fn to_layout_2(&self) -> Layout2 {
        let Self { records, ledger, requests, audit, hot, .. } = self.clone();
        Layout2 { records, ledger, requests, audit, hot }
    }

    /// The same for nodes of wire version 3.
    pub(crate) fn to_layout_3(&self) -> Layout3 {
        let Self { records, ledger, requests, audit, hot, shares, .. } = self.clone();
        Layout3 { records, ledger, requests, audit, hot, shares }
    }

    /// The same for nodes of wire version 4.
    pub(crate) fn to_layout_4(&self) -> Layout4 {
        let Self { mut records, ledger, requests, audit, hot, shares, .. } = self.clone();
        let residences = Residences::take_from(&mut records);
        Layout4 { records, ledger, requests, audit, hot, shares, residences }
    }
}

/// Both frames as bytes.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let short = |needed| DecodeError::TooShort { bytes: bytes.len(), needed };
    let first = bytes.first_chunk().ok_or_else(|| short(HEADER_BYTES))?;
    let head_bytes = HEADER_BYTES + FrameHeader::parse(first)?.admit::<Head>()?;
    bytes.split_at_checked(head_bytes).ok_or_else(|| short(head_bytes))
}

/// What any version can read of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The wire version of the newest command that took part.
    needs: u16,
    /// Of the state, as the writer's version reckons it.
    digest: Digest,
}

/// The state in the present layout. Whoever changes a record, a table or the ledger counts the
/// version up and keeps the old types: as long as nothing newer than them took part in a state, it
/// is written in the old layout and has the old digest, so that older nodes read it and agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout {
    older: Layout4,
    beside: Beside,
    clock: ClusterClock,
}

/// The state as wire version 4 had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout4 {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
    hot: HotTrie,
    shares: Shares,
    residences: Residences,
}

/// The state as wire version 3 had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout3 {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
    hot: HotTrie,
    shares: Shares,
}

/// The state as wire version 2 had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout2 {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
    hot: HotTrie,
}

/// The state as wire version 1 had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout1 {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
}

impl From<Layout1> for Layout2 {
    fn from(Layout1 { records, ledger, requests, audit }: Layout1) -> Self {
        Self { records, ledger, requests, audit, hot: HotTrie::default() }
    }
}

impl From<Layout2> for Layout3 {
    fn from(Layout2 { records, ledger, requests, audit, hot }: Layout2) -> Self {
        Self { records, ledger, requests, audit, hot, shares: Shares::default() }
    }
}

impl From<Layout3> for Layout4 {
    fn from(Layout3 { records, ledger, requests, audit, hot, shares }: Layout3) -> Self {
        let residences = Residences::default();
        Self { records, ledger, requests, audit, hot, shares, residences }
    }
}

impl From<Layout4> for Layout {
    fn from(older: Layout4) -> Self {
        Self { older, beside: Beside::default(), clock: ClusterClock::default() }
    }
}

impl From<Layout> for State {
    fn from(layout: Layout) -> Self {
        let Layout { older, beside, clock } = layout;
        let Layout4 { mut records, mut ledger, requests, audit, hot, shares, residences } = older;
        residences.put_into(&mut records);
        beside.put_into(&mut records, &mut ledger);
        Self { records, ledger, requests, audit, hot, shares, clock }
    }
}

impl Wire for Head {
    const KIND: u16 = 0x0304;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

impl Wire for Layout {
    const KIND: u16 = 0x0305;
    const VERSION: u16 = 5;
    /// What is left of [`SNAPSHOT_BYTES_MAX`] by both headers and the head.
    const BYTES_MAX: usize = SNAPSHOT_BYTES_MAX - 2 * HEADER_BYTES - Head::BYTES_MAX;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            Layout1::VERSION..=Layout3::VERSION => {
                Layout4::decode_older(version, payload).map(Self::from)
            }
            Layout4::VERSION => decode_payload::<Layout4>(payload).map(Self::from),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

impl Wire for Layout4 {
    const KIND: u16 = Layout::KIND;
    const VERSION: u16 = 4;
    const BYTES_MAX: usize = Layout::BYTES_MAX;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            Layout1::VERSION | Layout2::VERSION => {
                Layout3::decode_older(version, payload).map(Self::from)
            }
            Layout3::VERSION => decode_payload::<Layout3>(payload).map(Self::from),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

impl Wire for Layout3 {
    const KIND: u16 = Layout::KIND;
    const VERSION: u16 = 3;
    const BYTES_MAX: usize = Layout::BYTES_MAX;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            Layout1::VERSION => Layout2::decode_older(version, payload).map(Self::from),
            Layout2::VERSION => decode_payload::<Layout2>(payload).map(Self::from),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

impl Wire for Layout2 {
    const KIND: u16 = Layout::KIND;
    const VERSION: u16 = 2;
    const BYTES_MAX: usize = Layout::BYTES_MAX;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            Layout1::VERSION => decode_payload::<Layout1>(payload).map(Self::from),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

impl Wire for Layout1 {
    const KIND: u16 = Layout::KIND;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = Layout::BYTES_MAX;
}
