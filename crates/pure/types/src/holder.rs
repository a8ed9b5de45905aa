//! A replica's number in the prefix index.

/// Number of one replica in this process's prefix index: small and dense, so that a set of replicas
/// is a bit set. Each replica identity gets one number, and the number is not given to another
/// identity while a view that knows it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u16);

impl Holder {
    /// Returns the number as an array index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
