//! Traffic split (canary release, A/B test): the arm that a request belongs to.

use highway::{HighwayHash, HighwayHasher};
use spillway_types::{ArmName, ModelName, reasons};

use crate::rendezvous::Rendezvous;

/// First input of a split's hash; a change would move every user.
const KEY_LABEL: &[u8] = b"spillway split 1";

/// Split of traffic between named arms, in proportion to their weights.
///
/// Keys are hashed without a secret, on the split's name and the key alone: every node, after every
/// restart and in every release, gives a user the same arm. Clients may compute it without harm,
/// since arms are not replicas. The order of the arms does not matter, and each arm has a clock of
/// its own (see `rendezvous.rs`): more weight for one arm takes users from the others and moves
/// none between those.
#[derive(Debug)]
pub struct Split {
    /// Hash state with the label and the split's name.
    keyed: HighwayHasher,
    arms: Vec<ArmWeight>,
    /// Order of preference over the arms in `drawable`.
    order: Rendezvous,
    /// Positions in `arms` of the arms with a weight.
    drawable: Vec<usize>,
}

/// Arm of a split and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmWeight {
    /// Name of the arm, unique in the split.
    pub name: ArmName,
    /// Share of the traffic against the other arms; at 0 the arm gets only requests that name it.
    pub weight: u32,
}

/// Part of a request that selects its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmKey<'k> {
    /// No key: the arm is drawn.
    Nothing,
    /// Key to hash.
    User(&'k [u8]),
    /// Key to hash, unless it is the name of an arm: that arm is meant then, whatever its weight.
    UserOrArm(&'k [u8]),
}

/// Arm of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmChoice {
    /// Position of the arm in the order that the split was given.
    pub index: usize,
    /// Reason of the choice.
    pub reason: ArmReason,
}

reasons! {
    /// Reason for the choice of an arm.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ArmReason {
        /// The header or cookie of the split names the arm.
        Named = "named";
        /// The user, header or cookie of the request belongs to the arm, by its hash.
        Hashed = "hashed";
        /// The cookie of the split names the arm that an earlier request of the client got.
        Remembered = "remembered";
        /// The arm was drawn at random, in proportion to the weights.
        Drawn = "drawn";
        /// The replica that has the stored response serves the arm's model.
        Stored = "stored";
    }
}

/// Error for a split that can't be made.
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
    ///
    /// Returns an error if all weights are 0, or if two arms have one name.
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
        // The length keeps another split's name and key from reading the same.
        keyed.append(&(name.as_str().len() as u64).to_le_bytes());
        keyed.append(name.as_str().as_bytes());
        Ok(Self { keyed, arms, order, drawable })
    }

    /// Returns the arms in the given order.
    #[must_use]
    pub fn arms(&self) -> &[ArmWeight] {
        &self.arms
    }

    /// Returns the arm of a request: the one that it names, or else its key's, or else the
    /// `remembered` one that was drawn for its client before, or else one drawn now.
    ///
    /// A remembered arm counts only as long as it has a weight: a canary that is set to 0 loses its
    /// clients.
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
                // An arm without a weight loses its remembered clients.
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
        // All arms are accepted, and there is at least one.
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
