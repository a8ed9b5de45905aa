//! How a listener finds out who asks.

use std::sync::atomic::{AtomicU8, Ordering};

/// How a listener finds out who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessMode {
    /// It does not: whoever connects may use everything.
    #[default]
    None,
    /// By the key of each request.
    Keys,
    /// By the headers of a trusted proxy, which has asked for credentials itself.
    Headers,
}

/// A listener's mode: requests on connections that are open already follow a change too.
#[derive(Debug)]
pub(crate) struct AccessSwitch(AtomicU8);

impl AccessSwitch {
    pub(crate) fn new(mode: AccessMode) -> Self {
        Self(AtomicU8::new(mode as u8))
    }

    pub(crate) fn mode(&self) -> AccessMode {
        match self.0.load(Ordering::Relaxed) {
            value if value == AccessMode::None as u8 => AccessMode::None,
            value if value == AccessMode::Headers as u8 => AccessMode::Headers,
            _ => AccessMode::Keys,
        }
    }

    pub(crate) fn set(&self, mode: AccessMode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_stands_as_it_was_set() {
        let switch = AccessSwitch::new(AccessMode::Keys);
        for mode in [AccessMode::None, AccessMode::Headers, AccessMode::Keys] {
            switch.set(mode);
            assert_eq!(switch.mode(), mode);
        }
    }
}
