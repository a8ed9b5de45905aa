//! What a datagram said before nodes told what is still to be read at a replica.

use serde::{Deserialize, Serialize};

use crate::datagram::{Body, Datagram, Echo, Report};
use crate::entry::{ModelEntry, ReplicaEntryV1, ShareEntry, SiblingEntry};
use crate::name_id::NameId;

/// [`Datagram`], version 1.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DatagramV1 {
    origin: NameId,
    incarnation: u64,
    seq: u64,
    heard: u32,
    body: BodyV1,
}

#[derive(Debug, Serialize, Deserialize)]
enum BodyV1 {
    Region(Report<ModelEntry>),
    Sibling { echo: Echo, report: Report<SiblingEntryV1> },
    Ask { incarnation: u64, have: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
enum SiblingEntryV1 {
    Replica(ReplicaEntryV1),
    Share(ShareEntry),
}

impl From<DatagramV1> for Datagram {
    fn from(before: DatagramV1) -> Self {
        let DatagramV1 { origin, incarnation, seq, heard, body } = before;
        let body = match body {
            BodyV1::Region(report) => Body::Region(report),
            BodyV1::Sibling { echo, report } => Body::Sibling { echo, report: report.into() },
            BodyV1::Ask { incarnation, have } => Body::Ask { incarnation, have },
        };
        Self { origin, incarnation, seq, heard, body }
    }
}

impl From<Report<SiblingEntryV1>> for Report<SiblingEntry> {
    fn from(before: Report<SiblingEntryV1>) -> Self {
        let Report { age_ms, version, digest, whole, more, entries } = before;
        let entries = entries.into_iter().map(|entry| match entry {
            SiblingEntryV1::Replica(replica) => SiblingEntry::Replica(replica.into()),
            SiblingEntryV1::Share(share) => SiblingEntry::Share(share),
        });
        Self { age_ms, version, digest, whole, more, entries: entries.collect() }
    }
}
