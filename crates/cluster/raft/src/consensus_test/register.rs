//! A machine for tests: numbers by key.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::NodeName;

use crate::{Machine, MachineError};

/// Numbers by key, and how many commands there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Register {
    pub(crate) numbers: BTreeMap<u64, u64>,
    pub(crate) commands: u64,
    /// Nodes that were removed.
    removed: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Change {
    Set(u64, u64),
    /// Adds one, so that doing it twice shows.
    Count(u64),
    /// Does nothing but take room.
    Pad(String),
    /// Removes a node from what the machine knows; the members of the log stay.
    Remove(String),
    /// Has an outcome that no node can read.
    Unreadable,
}

/// The number before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Option<u64>")]
pub(crate) struct Before(pub(crate) Option<u64>);

/// Number that can be written as an outcome, and not be read.
const UNREADABLE: u64 = u64::MAX;

impl TryFrom<Option<u64>> for Before {
    type Error = &'static str;

    fn try_from(number: Option<u64>) -> Result<Self, Self::Error> {
        if number == Some(UNREADABLE) { Err("an unknown outcome") } else { Ok(Self(number)) }
    }
}

impl Wire for Change {
    const KIND: u16 = 0x7f30;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 70_000;
}

impl Wire for Before {
    const KIND: u16 = 0x7f31;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

impl Wire for Register {
    const KIND: u16 = 0x7f32;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 1 << 20;
}

impl Machine for Register {
    type Command = Change;
    type Outcome = Before;

    fn apply(&mut self, _index: u64, command: &Change) -> Before {
        self.commands += 1;
        match command {
            Change::Set(key, value) => Before(self.numbers.insert(*key, *value)),
            Change::Count(key) => {
                let number = self.numbers.entry(*key).or_insert(0);
                *number += 1;
                Before(Some(*number - 1))
            }
            Change::Pad(_) => Before(None),
            Change::Remove(name) => {
                self.removed.insert(name.clone());
                Before(None)
            }
            Change::Unreadable => Before(Some(UNREADABLE)),
        }
    }

    fn is_removed(&self, name: &NodeName) -> bool {
        self.removed.contains(name.as_str())
    }

    fn snapshot(&self) -> Result<Bytes, MachineError> {
        spillway_codec::encode(self).map_err(|error| MachineError(error.to_string()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MachineError> {
        *self =
            spillway_codec::decode(snapshot).map_err(|error| MachineError(error.to_string()))?;
        Ok(())
    }

    fn digest(&self) -> u128 {
        let mut digest = u128::from(self.commands);
        for (key, value) in &self.numbers {
            digest = digest
                .wrapping_mul(0x0100_0000_01b3)
                .wrapping_add(u128::from(*key) << 64 | u128::from(*value));
        }
        digest
    }
}
