//! Files about limits for the next process of this node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_rate_limit::{Scope, Units};

use super::uptime::Uptime;

/// Name of the file in the data folder.
const FILE: &str = "limits";
/// Name of the file with debts.
const OWED_FILE: &str = "limits_owed";

/// Content of the file for the next process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedQuota {
    /// Floors that this node has given a part of, and the units left of them.
    pub(super) lowered: BTreeMap<Scope, Units>,
    /// Charges up to an orderly end of the process; `None` while a process is running.
    pub(super) stopped: Option<Stopped>,
}

/// Charges up to the end of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stopped {
    /// Time of the end.
    pub(super) at: Uptime,
    /// Tokens charged to each limit, each with the least number of milliseconds between the charge
    /// and the end.
    pub(super) tokens: BTreeMap<Scope, Vec<(u64, u64)>>,
}

/// Debts of a node to limits: tokens that were used beyond their charge and are not charged yet.
///
/// A file of its own: debts are written every few seconds, so that a process which crashes leaves
/// them behind, and the other file can be large.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Owed(pub(super) BTreeMap<Scope, u64>);

impl Wire for Owed {
    const KIND: u16 = 0x0702;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 16 << 20;
}

impl Wire for SavedQuota {
    const KIND: u16 = 0x0701;
    const VERSION: u16 = 1;
    // As many limits as there may be, with a minute of half seconds each.
    const BYTES_MAX: usize = 64 << 20;
}

impl Stopped {
    /// Returns the charges to a limit, each with its least age now.
    pub(super) fn charged(&self, scope: &Scope, now: &Uptime) -> Vec<(Duration, u64)> {
        let passed = now.since(&self.at);
        let tokens = self.tokens.get(scope).map(Vec::as_slice).unwrap_or_default();
        tokens.iter().map(|(ms, tokens)| (passed + Duration::from_millis(*ms), *tokens)).collect()
    }
}

/// Returns the path of the file.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Returns the path of the file with debts.
pub(super) fn owed_path(folder: &Path) -> PathBuf {
    folder.join(OWED_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_codec::golden;
    use spillway_files::{load, save};

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

    #[test]
    fn the_bytes_of_the_files_are_those_on_file() {
        let lowered = [(Scope::Model("m".into()), Units([1, 2, 300]))].into();
        let tokens = [(Scope::Global, vec![(500, 7), (20_000, 9)])].into();
        let stopped = Some(Stopped { at: Uptime::of("boot", "100.50 7.2"), tokens });
        golden::check(FOLDER, "limits", &SavedQuota { lowered, stopped });
        let owed = [(Scope::Global, 5), (Scope::Tenant("t".into()), 21_000)];
        golden::check(FOLDER, "limits_owed", &Owed(owed.into()));
    }

    #[test]
    fn what_was_owed_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = owed_path(folder.path());
        let owed = Owed([(Scope::Tenant("t".into()), 21_000)].into());
        save(&path, &owed).unwrap();
        assert_eq!(load(&path).unwrap(), Some(owed));
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        assert_eq!(load::<SavedQuota>(&path).unwrap(), None);
        let tokens = [(Scope::Global, vec![(500, 7), (20_000, 9)])].into();
        let stopped = Stopped { at: Uptime::default(), tokens };
        let lowered = [(Scope::Model("m".into()), Units([1, 2, 3]))].into();
        let saved = SavedQuota { lowered, stopped: Some(stopped.clone()) };
        save(&path, &saved).unwrap();
        assert_eq!(load(&path).unwrap(), Some(saved));
        let charged = stopped.charged(&Scope::Global, &Uptime::default());
        assert_eq!(charged[1], (Duration::from_secs(20), 9));
        assert_eq!(stopped.charged(&Scope::Model("m".into()), &Uptime::default()), []);
    }
}
