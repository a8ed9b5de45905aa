//! Which arm of a traffic split a request belongs to.

use highway::{HighwayHash, HighwayHasher};
use spillway_types::{ArmName, ModelName};

use crate::rendezvous::Rendezvous;

/// What the hash of a split's keys begins with; another number would move every user.
const KEY_LABEL: &[u8] = b"spillway split 1";

/// A split of traffic between named arms, in proportion to their weights.
///
/// Keys are hashed without a secret, on the split's name and the key alone: every node, after every
/// restart and in every release, gives a user the same arm. It can do no harm that clients can
/// compute it, since arms are not replicas. The arms' order does not matter, and each has its clock
/// of its own (see `rendezvous.rs`): more weight for one arm takes users from the others and moves
/// none between those.
#[derive(Debug)]
pub struct Split {
    /// The hash of everything that keys are hashed with.
    keyed: HighwayHasher,
    arms: Vec<ArmWeight>,
    /// The order over the arms in `drawable`.
    order: Rendezvous,
    /// Positions in `arms` of those with a weight.
    drawable: Vec<usize>,
}

/// An arm and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmWeight {
    /// Its name, unique in the split.
    pub name: ArmName,
    /// Its share of the traffic against the other arms; with 0 it gets only what asks for it.
    pub weight: u32,
}

/// What a request brings to choose its arm by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmKey<'k> {
    /// Nothing: its arm is drawn.
    Nothing,
    /// A name to hash.
    User(&'k [u8]),
    /// A name to hash, unless it is an arm's: then that arm is meant, whatever its weight.
    UserOrArm(&'k [u8]),
}

/// The arm of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmChoice {
    /// Its position in the order that the split was given.
    pub index: usize,
    /// What decided.
    pub reason: ArmReason,
}

/// What decided about an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmReason {
    /// The request named it.
    Named,
    /// The request's key belongs to it.
    Hashed,
    /// It was drawn for an earlier request of the same client.
    Remembered,
    /// Chance drew it.
    Drawn,
}

/// Why there can be no such split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No arm would get any traffic.
    #[error("no arm has a weight")]
    NoWeight,
    /// Two arms share a name.
    #[error("two arms are called {0}")]
    SameName(ArmName),
}

impl Split {
    /// Prepares a split for the arms in this order.
    ///
    /// # Errors
    /// If their weights are all 0, or two of them have one name.
    pub fn new(name: &ModelName, arms: Vec<ArmWeight>) -> Result<Self, SplitError> {
        let is_again =
            |index: &usize| arms[..*index].iter().any(|arm| arm.name == arms[*index].name);
        if let Some(index) = (0..arms.len()).find(is_again) {
            return Err(SplitError::SameName(arms[index].name.clone()));
        }
        let drawable: Vec<usize> = (0..arms.len()).filter(|&at| arms[at].weight > 0).collect();
        if drawable.is_empty() {
            return Err(SplitError::NoWeight);
        }
        let order = Rendezvous::weighted(
            drawable.iter().map(|&at| (identity(&arms[at].name), arms[at].weight)),
        );
        let mut keyed = HighwayHasher::default();
        keyed.append(KEY_LABEL);
        // With its length, so that no other split's name and key read the same.
        keyed.append(&(name.as_str().len() as u64).to_le_bytes());
        keyed.append(name.as_str().as_bytes());
        Ok(Self { keyed, arms, order, drawable })
    }

    /// The arms in the order that they were given.
    #[must_use]
    pub fn arms(&self) -> &[ArmWeight] {
        &self.arms
    }

    /// The arm of a request: the one that it names, else its key's, else the one that was drawn for
    /// its client before, which is `remembered`, else one drawn now.
    ///
    /// What is remembered counts only as long as that arm gets traffic: a canary that is taken down
    /// to 0 loses its clients.
    pub fn choose(
        &self,
        key: ArmKey<'_>,
        remembered: Option<&[u8]>,
        rng: &mut fastrand::Rng,
    ) -> ArmChoice {
        let named = |name| self.arms.iter().position(|arm| arm.name.as_str().as_bytes() == name);
        let (index, reason) = match key {
            ArmKey::UserOrArm(text) if let Some(index) = named(text) => (index, ArmReason::Named),
            ArmKey::User(text) | ArmKey::UserOrArm(text) => {
                (self.preferred(self.hash(text)), ArmReason::Hashed)
            }
            ArmKey::Nothing => {
                let known = remembered.and_then(named).filter(|&at| self.arms[at].weight > 0);
                known.map_or_else(
                    // A random key is as good a draw as any.
                    || (self.preferred(rng.u64(..)), ArmReason::Drawn),
                    |index| (index, ArmReason::Remembered),
                )
            }
        };
        ArmChoice { index, reason }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.keyed.clone();
        hasher.append(key);
        hasher.finalize64()
    }

    fn preferred(&self, key: u64) -> usize {
        // All are accepted, and there is one at least.
        let preferred = self.order.prefer(key, Some).map_or(0, |preferred| preferred.accepted);
        self.drawable[preferred]
    }
}

fn identity(name: &ArmName) -> u64 {
    HighwayHasher::default().hash64(name.as_str().as_bytes())
}

#[cfg(test)]
#[path = "split_test.rs"]
mod split_test;
