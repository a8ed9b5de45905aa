//! Memory of processes.

use procfs::ProcResult;
use procfs::process::Process;

use crate::usage::descendants_of;

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
    pub(super) fn of(process: i32) -> ProcResult<Self> {
        let status = Process::new(process)?.status()?;
        let mib = |kib: Option<u64>| kib.unwrap_or_default() as f64 / 1024.0;
        Ok(Self { resident_mib: mib(status.vmrss), anonymous_mib: mib(status.rssanon) })
    }

    /// Reads the memory of all processes below `root`, such as that under a guard.
    pub(super) fn below(root: u32) -> ProcResult<Self> {
        let mut sum = Self::default();
        for process in descendants_of(root)? {
            let one = Self::of(process)?;
            sum.resident_mib += one.resident_mib;
            sum.anonymous_mib += one.anonymous_mib;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_mebibytes() {
        let own = Memory::of(std::process::id().cast_signed()).unwrap();
        assert!(own.resident_mib > own.anonymous_mib && own.anonymous_mib > 0.0, "{own:?}");
        assert!(own.resident_mib < 4096.0, "{own:?}");
    }
}
