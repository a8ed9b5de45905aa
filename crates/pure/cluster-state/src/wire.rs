//! Versions of the format of entries and snapshots.
//!
//! New commands go to the end of [`crate::Command`], with the wire version that has them in
//! [`crate::Command::since`]. During a rolling upgrade some nodes are older: [`crate::admits`]
//! refuses such a command as long as one of them is registered, at the proposer and again when it
//! is applied. So no log has a command that one of its nodes can't read. Once a newer command was
//! applied, older nodes can't join. `state::version_test` tests all this with an invented version.

/// Wire version of this program. Each new command, kind of record, setting or rule raises it.
///
/// Version 2 has terms of tenants, prices of models, settings of routes, what arms of splits are
/// chosen by, and orders to one node. Version 3 has rollouts of splits.
pub const WIRE: u16 = 3;

/// First wire version whose splits choose arms by themselves, see [`crate::Split::chooses_arms`].
pub(crate) const WIRE_SPLIT_BY: u16 = 2;
/// First wire version whose splits have rollouts, and with [`crate::Command::ChangeRollout`].
pub(crate) const WIRE_ROLLOUT: u16 = 3;
/// First wire version with [`crate::Command::RecordOrder`].
pub(crate) const RECORD_ORDER: u16 = 2;
/// First wire version for whose nodes [`crate::Model::EVERY`] is more than a name. Older nodes take
/// any model of that name, so all nodes do while one of them is registered.
pub(crate) const WIRE_EVERY_MODEL: u16 = 2;
