//! Access of rules to the state.

use spillway_prefix::HotTrie;
use spillway_rate_limit::Shares;
use spillway_types::RegionName;

use crate::records::Stored;
use crate::records::lookup::{key_epoch, node_named, setting};
use crate::rules::check;
use crate::state::Ledger;
use crate::{
    Actor, ApplyError, Change, ChangeKind, CommandError, Entry, Expect, NodeId, Proposer, Records,
    RefusalCode,
};

/// Access of rules to the state while one entry is carried out. A rule checks everything before it
/// writes the first record, so an error leaves all records as they were.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) records: &'a mut Records,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) hot: &'a mut HotTrie,
    pub(crate) shares: &'a mut Shares,
    pub(crate) entry: &'a Entry,
    pub(crate) changes: Vec<Change>,
    /// True if anything was written, watched or not.
    pub(crate) is_written: bool,
}

/// Result of a command that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Number of parts of a batch that were left out.
    pub(crate) skipped: u32,
}

impl<'a> Turn<'a> {
    /// Returns the access for carrying out `entry` on these parts of a state.
    pub(crate) fn new(
        records: &'a mut Records,
        ledger: &'a mut Ledger,
        hot: &'a mut HotTrie,
        shares: &'a mut Shares,
        entry: &'a Entry,
    ) -> Self {
        Self { records, ledger, hot, shares, entry, changes: Vec::new(), is_written: false }
    }

    pub(crate) fn get<V: Stored>(&self, key: &V::Key) -> Option<&V> {
        V::table(self.records).get(key)
    }

    /// Returns a copy of the record to change.
    ///
    /// # Errors
    /// Returns an error if the record is not as the command expects, or does not exist.
    pub(crate) fn take<V: Stored>(&self, key: &V::Key, expect: Expect) -> Result<V, ApplyError> {
        self.expect::<V>(key, expect)?;
        let value = self.get::<V>(key).cloned();
        value.ok_or_else(|| CommandError::unknown(&V::key(key)).into())
    }

    /// Checks the command's condition on a record.
    ///
    /// # Errors
    /// Returns an error if the record is not as expected, or if no record can have the key.
    pub(crate) fn expect<V: Stored>(&self, key: &V::Key, expect: Expect) -> Result<(), ApplyError> {
        let key = V::key(key);
        check::key(&key)?;
        let current = self.records.version(&key);
        let is_expected = match expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Version(version) => current == Some(version),
        };
        if is_expected { Ok(()) } else { Err(ApplyError::Conflict { key, current }) }
    }

    /// Checks that the table has room for `more` records.
    ///
    /// # Errors
    /// Returns [`RefusalCode::LimitReached`] if there would be too many.
    pub(crate) fn check_room<V: Stored>(&self, more: usize) -> Result<(), CommandError> {
        if V::table(self.records).len() + more <= V::COUNT_MAX {
            return Ok(());
        }
        let cause = format!("there are {} records of this kind, which is the limit", V::COUNT_MAX);
        Err(CommandError::new(RefusalCode::LimitReached, cause, "remove some that nobody needs"))
    }

    /// Writes a record. A record with an equal value stays as it is, version included.
    ///
    /// # Errors
    /// Returns [`RefusalCode::LimitReached`] if the record is new and the table is full. Rules that
    /// write several records call [`Self::check_room`] first.
    pub(crate) fn put<V: Stored>(&mut self, key: V::Key, value: V) -> Result<(), CommandError> {
        let kind = match self.get::<V>(&key) {
            // The version stays, so that conditions of other commands still hold.
            Some(old) if *old == value => return Ok(()),
            Some(_) => ChangeKind::Updated,
            None => {
                self.check_room::<V>(1)?;
                ChangeKind::Created
            }
        };
        self.changes.push(Change { key: V::key(&key), kind });
        self.put_quietly(key, value);
        Ok(())
    }

    /// Writes a record without notifying watchers, for records that are renewed all the time. The
    /// record must exist, or belong to exactly one record of a table with the same limit.
    pub(crate) fn put_quietly<V: Stored>(&mut self, key: V::Key, value: V) {
        let version = self.ledger.applied;
        V::table_mut(self.records).insert(key, version, value);
        self.is_written = true;
    }

    /// Removes a record if it exists, and returns it.
    pub(crate) fn remove<V: Stored>(&mut self, key: &V::Key) -> Option<V> {
        let value = self.remove_quietly(key)?;
        self.changes.push(Change { key: V::key(key), kind: ChangeKind::Removed });
        Some(value)
    }

    /// Removes a record if it exists, without notifying watchers.
    pub(crate) fn remove_quietly<V: Stored>(&mut self, key: &V::Key) -> Option<V> {
        let value = V::table_mut(self.records).remove(key)?;
        self.is_written = true;
        Some(value)
    }

    /// Returns the value of a setting that is a number of milliseconds; 0 if there is no such
    /// setting.
    pub(crate) fn setting_ms(&self, name: &str) -> u64 {
        setting(self.records, name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Returns the number of the key for hashing prompts.
    pub(crate) fn key_epoch(&self) -> u64 {
        key_epoch(self.records)
    }

    pub(crate) fn is_operator(&self) -> bool {
        matches!(self.entry.actor, Actor::Operator(_))
    }

    /// Checks that the proposer is a registered node of `region`, and returns its id.
    ///
    /// # Errors
    /// Returns [`RefusalCode::NotOwner`] otherwise.
    pub(crate) fn check_owner(&self, region: &RegionName) -> Result<NodeId, CommandError> {
        check::name(region.as_str(), "region")?;
        match proposing_node(self.records, &self.entry.proposer) {
            Some(id) if self.entry.proposer.region == *region => Ok(id),
            _ => Err(CommandError::new(
                RefusalCode::NotOwner,
                format!("the proposer is no registered node of region {region}"),
                "let a node of that region propose it",
            )),
        }
    }

    /// Checks that an operator ordered the command.
    ///
    /// # Errors
    /// Returns [`RefusalCode::NotPermitted`] for commands of nodes.
    pub(crate) fn check_operator(&self) -> Result<(), CommandError> {
        if self.is_operator() {
            return Ok(());
        }
        let (cause, remedy) = ("only operators may do this", "use the admin API");
        Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy))
    }
}

/// Returns the id of the registered node with the proposer's name and region; None if there is
/// none.
pub(crate) fn proposing_node(records: &Records, proposer: &Proposer) -> Option<NodeId> {
    let (id, node) = node_named(records, &proposer.node)?;
    (node.spec.region == proposer.region).then_some(id)
}
