//! One entry being carried out.

use spillway_prefix::HotTrie;
use spillway_quota::Shares;
use spillway_types::RegionName;

use crate::records::Stored;
use crate::rules::check;
use crate::state::{Ledger, key_epoch, node_named, setting, wire_oldest};
use crate::wire::WIRE_MEMBERS;
use crate::{
    Actor, Change, ChangeKind, Entry, Expect, Fault, NodeId, Proposer, Records, Refusal,
    RefusalCode,
};

/// One entry being carried out: what rules read and write. A rule checks everything before it
/// writes the first record, so a fault leaves all records as they were.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) records: &'a mut Records,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) hot: &'a mut HotTrie,
    pub(crate) shares: &'a mut Shares,
    pub(crate) entry: &'a Entry,
    pub(crate) changes: Vec<Change>,
    /// Whether anything was written, seen by watchers or not.
    pub(crate) is_written: bool,
}

/// A command was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Parts of a batch that were left out.
    pub(crate) skipped: u32,
}

impl<'a> Turn<'a> {
    /// `entry`, carried out on the parts of a state that commands change.
    pub(crate) fn new(
        (records, ledger): (&'a mut Records, &'a mut Ledger),
        (hot, shares): (&'a mut HotTrie, &'a mut Shares),
        entry: &'a Entry,
    ) -> Self {
        Self { records, ledger, hot, shares, entry, changes: Vec::new(), is_written: false }
    }

    pub(crate) fn get<V: Stored>(&self, key: &V::Key) -> Option<&V> {
        V::table(self.records).get(key)
    }

    /// A copy of the record to change, if it is as the command expects.
    ///
    /// # Errors
    /// If it is not, or if it does not exist.
    pub(crate) fn take<V: Stored>(&self, key: &V::Key, expect: Expect) -> Result<V, Fault> {
        self.expect::<V>(key, expect)?;
        let value = self.get::<V>(key).cloned();
        value.ok_or_else(|| Refusal::unknown(&V::key(key)).into())
    }

    /// # Errors
    /// If the record is not as the command expects, or can have no such name.
    pub(crate) fn expect<V: Stored>(&self, key: &V::Key, expect: Expect) -> Result<(), Fault> {
        let key = V::key(key);
        check::key(&key)?;
        let current = self.records.version(&key);
        let is_expected = match expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Version(version) => current == Some(version),
        };
        if is_expected { Ok(()) } else { Err(Fault::Conflict { key, current }) }
    }

    /// # Errors
    /// If `more` records than there are would be too many.
    pub(crate) fn check_room<V: Stored>(&self, more: usize) -> Result<(), Refusal> {
        if V::table(self.records).len() + more <= V::COUNT_MAX {
            return Ok(());
        }
        let cause = format!("there are {} records of this kind, which is the limit", V::COUNT_MAX);
        Err(Refusal::new(RefusalCode::LimitReached, cause, "remove some that nobody needs"))
    }

    /// Writes a record. One that is the same already stays as it is, version included.
    ///
    /// # Errors
    /// If it is new and there are too many. Rules that write several records ask
    /// [`Self::check_room`] first.
    pub(crate) fn put<V: Stored>(&mut self, key: V::Key, value: V) -> Result<(), Refusal> {
        let kind = match self.get::<V>(&key) {
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

    /// Writes a record without telling watchers, for what is renewed all the time. It must exist,
    /// or belong one to one to a record of a table with the same limit.
    pub(crate) fn put_quietly<V: Stored>(&mut self, key: V::Key, value: V) {
        let version = self.ledger.applied;
        V::table_mut(self.records).insert(key, version, value);
        self.is_written = true;
    }

    /// Removes a record if it exists.
    pub(crate) fn remove<V: Stored>(&mut self, key: &V::Key) -> Option<V> {
        let value = self.remove_quietly(key)?;
        self.changes.push(Change { key: V::key(key), kind: ChangeKind::Removed });
        Some(value)
    }

    /// Removes a record that watchers are not told of.
    pub(crate) fn remove_quietly<V: Stored>(&mut self, key: &V::Key) -> Option<V> {
        let value = V::table_mut(self.records).remove(key)?;
        self.is_written = true;
        Some(value)
    }

    /// The value of a setting that is a number.
    pub(crate) fn setting_ms(&self, name: &str) -> u64 {
        setting(self.records, name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Which key prompts are hashed with.
    pub(crate) fn key_epoch(&self) -> u64 {
        key_epoch(self.records)
    }

    /// See [`crate::State::is_guarded`].
    pub(crate) fn is_guarded(&self) -> bool {
        self.ledger.cluster.is_some() && wire_oldest(self.records) >= WIRE_MEMBERS
    }

    pub(crate) fn is_operator(&self) -> bool {
        matches!(self.entry.actor, Actor::Operator(_))
    }

    /// The proposer's id, if it is a node of `region`.
    ///
    /// # Errors
    /// [`RefusalCode::NotOwner`].
    pub(crate) fn check_owner(&self, region: &RegionName) -> Result<NodeId, Refusal> {
        check::name(region.as_str(), "region")?;
        match proposing_node(self.records, &self.entry.proposer) {
            Some(id) if self.entry.proposer.region == *region => Ok(id),
            _ => Err(Refusal::new(
                RefusalCode::NotOwner,
                format!("the proposer is no registered node of region {region}"),
                "let a node of that region propose it",
            )),
        }
    }

    /// # Errors
    /// [`RefusalCode::NotPermitted`] for nodes.
    pub(crate) fn check_operator(&self) -> Result<(), Refusal> {
        if self.is_operator() {
            return Ok(());
        }
        let (cause, remedy) = ("only operators may do this", "use the admin API");
        Err(Refusal::new(RefusalCode::NotPermitted, cause, remedy))
    }
}

/// The registered node that the proposer says it is.
pub(crate) fn proposing_node(records: &Records, proposer: &Proposer) -> Option<NodeId> {
    let (id, node) = node_named(records, &proposer.node)?;
    (node.spec.region == proposer.region).then_some(id)
}
