//! Memory of processes, from `/proc/<pid>/status`.

use std::{fs, io};

use crate::procfs::descendants_of;

/// Memory of one process or several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// Resident memory (`VmRSS`) in MiB.
    pub(super) resident_mib: f64,
    /// The part of it that no file backs (`RssAnon`): without the pages of the binary itself.
    pub(super) anonymous_mib: f64,
}

impl Memory {
    /// Reads the memory of `process`.
    pub(super) fn of(process: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/status"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other("a status without memory"))
    }

    /// Reads the memory of all processes below `root`, such as that under a guard.
    pub(super) fn below(root: u32) -> io::Result<Self> {
        let mut sum = Self::default();
        for process in descendants_of(root)? {
            let one = Self::of(process)?;
            sum.resident_mib += one.resident_mib;
            sum.anonymous_mib += one.anonymous_mib;
        }
        Ok(sum)
    }

    fn parse(status: &str) -> Option<Self> {
        let mib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: f64 = line.strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib / 1024.0)
        };
        Some(Self { resident_mib: mib("VmRSS:")?, anonymous_mib: mib("RssAnon:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_mebibytes() {
        let status = "Name:\tx\nVmRSS:\t   43008 kB\nRssAnon:\t   10240 kB\nThreads:\t3\n";
        let expected = Memory { resident_mib: 42.0, anonymous_mib: 10.0 };
        assert_eq!(Memory::parse(status), Some(expected));
        assert_eq!(Memory::parse("Name:\tx\n"), None);
        let own = Memory::of(std::process::id()).unwrap();
        assert!(own.resident_mib > own.anonymous_mib && own.anonymous_mib > 0.0, "{own:?}");
    }
}
