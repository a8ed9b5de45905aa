//! A replica's number in the prefix index.

/// Stands for one replica in this process's prefix index: small and dense, so that sets of
/// replicas are bits. It is given once to each replica's identity and never means another one
/// while a view that knows it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u16);

impl Holder {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
