//! The state that all nodes agree on, as a function of the log.
//!
//! [`State::apply`] takes one [`Entry`] after the other and returns its [`Effect`]. There is no
//! clock, no randomness and no I/O: the entries contain the times, so every node that applied the
//! same entries has the same [`State::digest`]. [`voters()`] plans changes of the Raft voters, one
//! step at a time.
//!
//! Operators' settings and nodes' reports are [`Command`]s. Each changes records of the tables in
//! `records`, by the rules in `rules`. A refused command changes no record, and its
//! [`CommandError`] has the cause and a remedy.

mod command;
mod entry;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hidden;
mod join_signature;
mod join_text;
mod key_text;
mod limits;
mod names;
mod outcome;
mod records;
mod refusal;
mod rules;
mod secret;
mod state;
mod wire;

pub use command::{
    Command, Expect, Form, Item, LeaseRenewal, NodeSpec, Observation, ReplicaSpec, TokenTerms,
};
pub use entry::{Actor, Entry, EntryError, Proposer};
pub use hidden::Hidden;
pub use join_signature::TokenSignature;
pub use join_text::JoinText;
pub use key_text::{KeyText, SECRET_BYTES};
pub use limits::{
    BATCH_MAX, ENTRY_BYTES_MAX, HOT_BATCH_MAX, LEASE_MS_MIN, OPERATOR_AUDIT_MAX, REQUEST_AGE_MS,
    REQUESTS_KEYED_MAX, REQUESTS_MAX, STATE_BYTES_MAX, SYSTEM_AUDIT_MAX, VOTERS_MAX,
};
pub use names::{
    CertificateSerial, ClusterId, DiskId, Fingerprint, KeyId, NodeId, ReplicaId, RequestId,
    TenantName, TokenId,
};
pub use outcome::{Change, ChangeDiff, ChangeKind, Effect, Outcome};
pub use records::{
    Arm, Belief, Health, JoinToken, KEY_EPOCH, Key, KeyRole, LEASE_MS, Lease, LeaseSource, Limit,
    LimitScope, Model, Node, NodeRight, NodeRole, Observed, PLACE_MS, Record, RecordKey, Records,
    Region, RegionState, RemovedNode, Replica, ReplicaState, ResidencyRule, RevokedCertificate,
    Route, SETTINGS, STICKY_MAX_AGE_S, Setting, SettingKind, SettingRule, Split, StickyArm, Tenant,
    TenantTerms, TokenOrigin, TokenPrice,
};
pub use refusal::{ApplyError, CommandError, RefusalCode};
pub use rules::check::registrable;
pub use rules::{Membership, MembershipPlan, VoterFacts, voters};
pub use secret::key_hash;
pub use spillway_prefix::{HotBlock, HotDelta, HotTrie, RegionBlocks};
pub use state::{
    AuditRecord, AuditRing, Digest, Row, SnapshotError, State, Table, admits, dry_run,
};
pub use wire::WIRE;

#[cfg(test)]
mod audit_test;
#[cfg(test)]
mod clock_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod health_test;
#[cfg(test)]
mod hot_test;
#[cfg(test)]
mod items_test;
#[cfg(test)]
mod members_test;
#[cfg(test)]
mod node_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod removed_test;
#[cfg(test)]
mod replica_test;
#[cfg(test)]
mod request_test;
#[cfg(test)]
mod residency_test;
#[cfg(test)]
mod rollouts_test;
#[cfg(test)]
mod room_test;
#[cfg(test)]
mod shares_test;
#[cfg(test)]
mod snapshot_test;
#[cfg(test)]
mod test_any;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod voters_test;
