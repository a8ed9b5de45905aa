//! Snapshots: the state as bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, EncodeError, FrameHeader, HEADER_BYTES, Wire, decode, encode};
use spillway_prefix::HotTrie;
use spillway_rate_limit::Shares;

use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::state::{Audit, ClusterClock, Ledger, Requests, State};
use crate::{Digest, EntryError, Records, WIRE};

/// Error of reading a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The snapshot is malformed, or of a version that this program does not read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The snapshot needs a later version of the program.
    #[error("the snapshot: {0}")]
    Newer(EntryError),
    /// The state that was read is not the state that was written.
    #[error("the snapshot was written with digest {written} and reads as {read}: take another one")]
    Digest {
        /// Digest of the state that was written.
        written: Digest,
        /// Digest of the state that was read.
        read: Digest,
    },
}

impl State {
    /// Returns the whole state as two frames with checksums. It has hashes of API keys, but no
    /// secrets.
    ///
    /// # Errors
    /// Returns an error if the state is too long, which its limits prevent.
    pub fn to_snapshot(&self) -> Result<Bytes, EncodeError> {
        let head = encode(&self.to_head())?;
        Ok([head, encode(&self.to_layout())?].concat().into())
    }

    /// Reads a snapshot that [`Self::to_snapshot`] wrote.
    ///
    /// # Errors
    /// Returns an error if the bytes were changed, or need a later version of the program.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (head, layout) = split(bytes)?;
        let Head { needs, digest: written } = decode(head)?;
        // Checked before the layout, which this version may be unable to read.
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

    /// Returns the layout of the state. A message owns its content, at the price of a clone of a
    /// few milliseconds.
    pub(crate) fn to_layout(&self) -> Layout {
        let Self { records, ledger, requests, audit, hot, shares, clock } = self.clone();
        Layout { records, ledger, requests, audit, hot, shares, clock }
    }
}

/// Splits a snapshot into its two frames.
pub(super) fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let short = |needed| DecodeError::TooShort { bytes: bytes.len(), needed };
    let first = bytes.first_chunk().ok_or_else(|| short(HEADER_BYTES))?;
    let head_bytes = HEADER_BYTES + FrameHeader::parse(first)?.admit::<Head>()?;
    bytes.split_at_checked(head_bytes).ok_or_else(|| short(head_bytes))
}

/// First frame of a snapshot, which every version can read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Highest wire version that an applied command needed.
    pub(super) needs: u16,
    /// Digest of the state, as the writer's version computes it.
    pub(super) digest: Digest,
}

/// Layout of the state in a snapshot.
///
/// A change of a record, a table or the ledger raises the layout's version and keeps the layout
/// before it, for [`Wire::decode_older`] to read. As long as no newer command took part in a state,
/// the state is written in the older layout and has the older digest. So nodes of both versions
/// agree, and an older program reads the snapshot. `version_test` has an example. Fields of a
/// record that take no bytes while they are unused, as those of [`crate::Split`], need no other
/// layout: [`Head::needs`] shows an older program that they are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
    hot: HotTrie,
    shares: Shares,
    clock: ClusterClock,
}

impl From<Layout> for State {
    fn from(layout: Layout) -> Self {
        let Layout { records, ledger, requests, audit, hot, shares, clock } = layout;
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
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = SNAPSHOT_BYTES_MAX - 2 * HEADER_BYTES - Head::BYTES_MAX;
}
