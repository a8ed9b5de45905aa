//! Authentication mode of a listener.

use std::sync::atomic::{AtomicU8, Ordering};

/// Authentication mode of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessMode {
    /// No authentication: every client may use everything.
    #[default]
    None,
    /// Authentication by the key of each request.
    Keys,
    /// Authentication by the headers of a trusted proxy, which has checked credentials itself.
    Headers,
}

impl AccessMode {
    /// Returns the mode's name in configs, logs and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Keys => "keys",
            Self::Headers => "headers",
        }
    }
}

/// Current mode of a listener. A change also applies to requests on open connections.
#[derive(Debug)]
pub struct AccessSwitch(AtomicU8);

impl AccessSwitch {
    /// Returns a switch in position `mode`.
    pub fn new(mode: AccessMode) -> Self {
        Self(AtomicU8::new(mode as u8))
    }

    /// Returns the mode that holds now.
    pub fn mode(&self) -> AccessMode {
        match self.0.load(Ordering::Relaxed) {
            value if value == AccessMode::None as u8 => AccessMode::None,
            value if value == AccessMode::Headers as u8 => AccessMode::Headers,
            // Any other number would be a fault, and must not open the listener.
            _ => AccessMode::Keys,
        }
    }

    /// Sets the mode for requests that begin from now on.
    pub fn set(&self, mode: AccessMode) {
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
